/* without.c - what plans for a device leave out: the words of weft_fn_opts.without. */
#include "exec/exec.h"

weft_status wf_without_parse(const char *text, unsigned *out)
{
    static const struct {
        const char *word;
        enum wf_without bit;
    } words[] = {{"mixed", WF_WITHOUT_MIXED},         {"norms", WF_WITHOUT_NORMS},
                 {"epilogues", WF_WITHOUT_EPILOGUES}, {"overlap", WF_WITHOUT_OVERLAP},
                 {"attention", WF_WITHOUT_ATTENTION}, {"casts", WF_WITHOUT_CASTS},
                 {"residuals", WF_WITHOUT_RESIDUALS}};

    *out = 0;
    for (const char *p = text ? text : ""; *p; p += strspn(p, ", ")) {
        size_t n = strcspn(p, ", ");
        bool known = n == 0;

        for (int i = 0; i < WF_COUNT(words); i++)
            if (strlen(words[i].word) == n && !memcmp(words[i].word, p, n)) {
                *out |= words[i].bit;
                known = true;
            }
        if (!known)
            return wf_err(WEFT_EINVAL,
                          "without: '%.*s' is none of mixed, norms, epilogues, overlap, attention, "
                          "casts, residuals",
                          (int)(n < 40 ? n : 40), p);
        p += n;
    }
    return WEFT_OK;
}
