/* store.c - the flags and job keys of a chief's store. */
#define _GNU_SOURCE
#include "store.h"

const char *const store_keys[STORE_KEYS] = {"cluster.store", "cluster.store_ca",
                                            "cluster.store_cert", "cluster.store_key"};

void read_store(const weft_job *job, const char *value[STORE_KEYS],
                char text[STORE_KEYS][STORE_TEXT])
{
    for (int i = 0; i < STORE_KEYS; i++) {
        const char *said = weft_job_text(job, store_keys[i]);

        if (value[i] || !said || !*said)
            continue;
        snprintf(text[i], STORE_TEXT, "%s", said);
        value[i] = text[i];
    }
}

void set_store(weft_ps_opts *o, const char *const value[STORE_KEYS], bool insecure)
{
    o->folder = value[0];
    o->store_authority = value[1];
    o->store_certificate = value[2];
    o->store_key = value[3];
    o->insecure_store = insecure;
}
