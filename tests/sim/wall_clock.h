/* wall_clock.h - a wall clock that jumps.
 *
 * In a program that links this file, CLOCK_REALTIME includes the jumps so far;
 * all other clocks are those of the system. Neither nodes nor clients may
 * depend on the wall clock. */
#ifndef HF_TESTS_SIM_WALL_CLOCK_H
#define HF_TESTS_SIM_WALL_CLOCK_H

#include <stdint.h>

/* Set the wall clock forward, or back if `ms` is negative. The sum of all jumps
 * is rounded to whole seconds. */
void sim_wall_clock_jump(int64_t ms);

/* Undo all jumps. */
void sim_wall_clock_reset(void);

#endif
