/* store.h - the flags and job keys of a chief's store, of `weft launch` and `weft node`. */
#ifndef WEFT_CLI_STORE_H
#define WEFT_CLI_STORE_H

#include <weft/dist.h>

#include "job.h"

/* Where it is, and the files of its TLS. */
enum { STORE_PEMS = 3, STORE_KEYS = 1 + STORE_PEMS, STORE_TEXT = 1024 };
extern const char *const store_keys[STORE_KEYS];

#define STORE_FLAGS(pem)                                                                       \
    {"store-ca", FLAG_TEXT, "FILE",                                                            \
     "of etcds: the authority of its certificate; same as --set cluster.store_ca", &(pem)[0]}, \
        {"store-cert", FLAG_TEXT, "FILE", "of etcds: certificate of the chiefs", &(pem)[1]},   \
    {                                                                                          \
        "store-key", FLAG_TEXT, "FILE", "of etcds: its key", &(pem)[2]                         \
    }

/* What the job says where `value` (the store, then the files) is NULL; into text. */
void read_store(const weft_job *job, const char *value[STORE_KEYS],
                char text[STORE_KEYS][STORE_TEXT]);
void set_store(weft_ps_opts *o, const char *const value[STORE_KEYS], bool insecure);

#endif
