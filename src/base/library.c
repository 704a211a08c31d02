/* library.c - libraries loaded on demand. */
#include <dlfcn.h>

#include "base/library.h"

weft_status wf_dl_load(const char *const *files, const char *package, const struct wf_dl_call *call,
                       int n, void *calls)
{
    void *lib = NULL;

    for (int i = 0; files[i] && !lib; i++)
        lib = dlopen(files[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!lib)
        return wf_err(WEFT_ENOSUP, "%s cannot be loaded: install %s", files[0], package);
    for (int i = 0; i < n; i++) {
        void *f = dlsym(lib, call[i].name);

        if (!f) {
            dlclose(lib);
            return wf_err(WEFT_ENOSUP, "%s has no %s: it is too old; install %s", files[0],
                          call[i].name, package);
        }
        memcpy((char *)calls + call[i].offset, &f, sizeof f);
    }
    dlclose(lib); /* RTLD_NODELETE: the calls stay valid */
    return WEFT_OK;
}
