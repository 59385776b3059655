#include <cstdio>
#include <cstring>
#include <initializer_list>

extern "C" int xnn_kernels(void);

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--help") == 0) {
    for (const char* flag : {"model_path", "num_executions", "etdump_path", "cpu_threads"}) {
      std::printf("    -%s (stand-in) type: string default: \"\"\n", flag);
    }
    return 1;
  }
  std::printf("sme2=%d log=%d\n", xnn_kernels(), XNN_LOG_LEVEL);
  return 0;
}
