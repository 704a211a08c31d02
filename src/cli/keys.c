/* keys.c - weft keys: what a job file may hold. */
#include "cli.h"

static int keys(int argc, char **argv)
{
    const struct flag flags[] = {{NULL, FLAG_BOOL, NULL, NULL, NULL}};
    const char *path, *kind, *standard, *help;
    int n = parse_flags(&command_keys, flags, argc, argv);

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    for (int i = 0; weft_job_key_at(i, &path, &kind, &standard, &help); i++)
        printf("%-26s %-8s %-14s %s\n", path, kind, standard, help);
    printf("\nkeys of data.train, data.validation, data.test:\n");
    for (int i = 0; weft_job_source_key_at(i, &path, &kind, &help); i++)
        printf("  %-24s %-8s %s\n", path, kind, help);
    printf("\nstages of data.pipeline:\n");
    for (int i = 0; weft_job_stage_at(i, &path, &kind, &help); i++)
        printf("  %-12s %-46s %s\n", path, kind, help);
    printf("\nlayers of model:\n");
    for (int i = 0; weft_layer_kind_at(i, &path, &kind, &help); i++)
        printf("  %-24s %s\n", path, help);
    printf("\ncallbacks of train.callbacks:\n");
    for (int i = 0; weft_callback_at(i, &path, &kind, &help); i++)
        printf("  %-20s %s\n", path, help);
    printf("\nstrategies of train.strategy:\n");
    for (int i = 0; weft_dist_at(i, &path, &help); i++)
        printf("  %-20s %s\n", path, help);
    return EXIT_DONE;
}

const struct command command_keys = {
    .name = "keys",
    .args = "",
    .summary = "what a job file may hold: keys, stages, layers, callbacks, strategies",
    .text = NULL,
    .run = keys,
};
