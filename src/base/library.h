/* library.h - libraries that are loaded when something needs them, not before. */
#ifndef WF_BASE_LIBRARY_H
#define WF_BASE_LIBRARY_H

#include "base/base.h"

/* A function to find, and the offset of its pointer in the caller's struct. */
struct wf_dl_call {
    const char *name;
    size_t offset;
};
/* Loads the first of `files` (NULL-terminated) that exists, and fills `calls`, a struct of n
 * function pointers. The library stays loaded. WEFT_ENOSUP names the Debian package that provides
 * it. */
weft_status wf_dl_load(const char *const *files, const char *package, const struct wf_dl_call *call,
                       int n, void *calls);

#endif
