#include <cstdio>

extern "C" int xnn_kernels(void);

int main() {
  std::printf("sme2=%d log=%d\n", xnn_kernels(), XNN_LOG_LEVEL);
  return 0;
}
