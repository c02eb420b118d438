"""Compiled loops over arrays: no I/O, no random numbers, no objects; arrays and numbers in, the same out.

Without Numba's fastmath: NaN must stay NaN. Why the hot loops look as they do:

- The queue is a sorted array that only moves its shorter side (`queue`): a waiting job's key does not change, so
  nothing is ever sorted again. A decision walks it only while GPUs are left (`admit`, `preempt`).
- Arrays handed to kernels are writable copies of the read-only columns: to Numba a read-only array is another type, so
  a kernel that gets both would compile twice.
- In a compiled loop a call with many arrays costs about 50 ns (reference counts), more than a short body: where loops
  over a job's GPUs are hot they are written out (in `preempt` 30 µs became 6 µs a decision).
"""
