/* Loaded before the C library: the clock of the wall jumps by days and years, the same for every process of a run.
 * How far follows from the monotonic clock, which no administrator and no time server can set. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static int (*real)(clockid_t, struct timespec *);

static long long offset_s(void) {
  static const long long steps[] = {0, -3600, 86400, -31536000, 7, -1000000000, 315360000, -1};
  const char *period = getenv("SME2PROF_ATTACK_STEP_MS");
  struct timespec now;
  long long every = period ? atoll(period) : 50;
  real(CLOCK_MONOTONIC, &now);
  long long ms = now.tv_sec * 1000LL + now.tv_nsec / 1000000;
  return steps[(ms / (every > 0 ? every : 1)) % 8];
}

int clock_gettime(clockid_t id, struct timespec *out) {
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(id, out);
  if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) out->tv_sec += offset_s();
  return result;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
