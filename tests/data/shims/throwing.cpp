// Stands in front of the runtime and throws what nobody foresaw.
#include <stdexcept>
namespace executorch::runtime {
void runtime_init() { throw std::runtime_error("thrown by the test"); }
}
