/* crash_point.h - numbered points at which a test can kill a process.
 *
 * Code that must survive a kill at any instruction marks the instructions
 * where a kill makes a difference:
 *
 *     half->size = bytes.size;
 *     HF_CRASH_POINT(9);
 *     hf_copy(half->bytes, bytes.data, bytes.size);
 *
 * tests/file/test_crash_points.c links src/strategy/file built with
 * HF_CRASH_POINTS, and kills a process at each point. In every other build
 * HF_CRASH_POINT() expands to nothing. If other sources use it, add them to the
 * library `stepped` in tests/meson.build. */
#ifndef HF_BASE_CRASH_POINT_H
#define HF_BASE_CRASH_POINT_H

#ifdef HF_CRASH_POINTS
void hf_crash_point(int number); /* defined by the test */
#define HF_CRASH_POINT(n) hf_crash_point(n)
#else
#define HF_CRASH_POINT(n) ((void)0)
#endif

#endif
