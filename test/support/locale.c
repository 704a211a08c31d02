/* locale.c - any test program under another locale: with WEFT_TEST_LOCALE=NAME in the environment
 * it starts as a host program that called setlocale(LC_ALL, NAME) before it used weft. */
#define _GNU_SOURCE
#include "support/locale.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SKIPPED = 77 };

const char *locale_missing(const char *name)
{
    const char *dir = getenv("LOCPATH");
    static char why[600];
    FILE *f;

    if (setlocale(LC_ALL, name))
        return NULL;
    if (!dir)
        return "LOCPATH is not set (ctest sets it)";
    snprintf(why, sizeof why, "%s/skipped", dir);
    f = fopen(why, "r");
    if (!f) {
        fprintf(stderr, "the locale %s is not in %s\n", name, dir);
        exit(EXIT_FAILURE);
    }
    why[0] = '\0';
    if (!fgets(why, sizeof why, f))
        strcpy(why, "no locales");
    fclose(f);
    return why;
}

__attribute__((constructor)) static void choose(void)
{
    const char *name = getenv("WEFT_TEST_LOCALE"), *why;

    if (!name)
        return;
    why = locale_missing(name);
    if (!why)
        return;
    fprintf(stderr, "skipped: %s\n", why);
    _exit(SKIPPED);
}
