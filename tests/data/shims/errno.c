// Leaves the errno of an allocation that failed and was then made elsewhere, as emulators do.
#include <errno.h>
#include <stddef.h>
void* __libc_malloc(size_t);
void* malloc(size_t size) { void* made = __libc_malloc(size); errno = ENOMEM; return made; }
