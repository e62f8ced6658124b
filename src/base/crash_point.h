/* crash_point.h - numbered points at which a test can stop a process for good.
 *
 * Code that must survive a kill at any instruction says where the interesting
 * instructions are:
 *
 *     half->size = bytes.size;
 *     HF_CRASH_POINT(9);
 *     hf_copy(half->bytes, bytes.data, bytes.size);
 *
 * and tests/file/test_crash_points.c, which is built with a library of its own, kills
 * a process at each of them. Elsewhere HF_CRASH_POINT() is nothing. */
#ifndef HF_BASE_CRASH_POINT_H
#define HF_BASE_CRASH_POINT_H

#ifdef HF_CRASH_POINTS
void hf_crash_point(int number); /* the test's */
#define HF_CRASH_POINT(n) hf_crash_point(n)
#else
#define HF_CRASH_POINT(n) ((void)0)
#endif

#endif
