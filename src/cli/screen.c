/* screen.c - progress on a terminal: repainted lines never wrap, colors are used only where wanted,
 * messages start on a line of their own, and a reader that went away is noticed. */
#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli.h"

bool screen_has_bar(void)
{
    const char *term = getenv("TERM");

    return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

static bool unfinished; /* the cursor is in a line that will be repainted */

/* Current width of the terminal: it may have been resized since the last line. */
int screen_columns(void)
{
    const char *columns = getenv("COLUMNS");
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return columns && atoi(columns) > 0 ? atoi(columns) : 80;
}

/* Whether the byte is the first of a character: UTF-8 continuation bytes begin with bits 10. */
static bool begins_character(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

int64_t screen_fit(const char *text, int columns, bool colors, char *out, int64_t size)
{
    int64_t n = 0, seen = 0;

    for (const char *p = text; *p && n < size - 1;) {
        if (p[0] == '\033' && p[1] == '[') {
            size_t len = 2 + strcspn(p + 2, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");

            len += p[len] != 0;
            if ((colors || p[len - 1] != 'm') && n + (int64_t)len < size) {
                memcpy(out + n, p, len);
                n += (int64_t)len;
            }
            p += len;
            continue;
        }
        if (*p == '\r' || *p == '\n')
            seen = 0;
        else if (begins_character(*p))
            seen++;
        if (columns <= 0 || seen <= columns)
            out[n++] = *p;
        p++;
    }
    out[n] = 0;
    return n;
}

bool screen_print(const char *text, bool last)
{
    const char *no_color = getenv("NO_COLOR");
    bool colors = !no_color || !*no_color;
    char line[4096];

    /* A line that stays may wrap. One that is repainted may not: its start would stay on the
     * screen. */
    screen_fit(text, last ? 0 : screen_columns() - 1, colors, line, sizeof line);
    if (*line)
        unfinished = line[strlen(line) - 1] != '\n';
    errno = 0;
    return fputs(line, stdout) >= 0 && fflush(stdout) == 0;
}

void screen_finish_line(void)
{
    if (unfinished)
        putchar('\n');
    unfinished = false;
    fflush(stdout);
}
