/* wirepage.c - reads the examples of docs/formats/wire.md and ps.md: blocks of hexadecimal
 * numbers. */
#include "support/wirepage.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int wirepage_bytes(const char *path, int example, uint8_t *out, int max)
{
    FILE *page = fopen(path, "r");
    bool inside = false;
    char line[800];
    int n = 0, block = -1;

    if (!page)
        return -1;
    while (fgets(line, sizeof line, page)) {
        if (strncmp(line, "```", 3) == 0) {
            inside = !inside;
            block += inside;
            continue;
        }
        for (char *p = line, *end; inside && block == example && n < max; p = end) {
            unsigned long v = strtoul(p, &end, 16);

            if (end == p)
                break;
            out[n++] = (uint8_t)v;
        }
    }
    fclose(page);
    return n ? n : -1;
}
