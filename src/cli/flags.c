/* flags.c - parsing flags by table, help texts, messages. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>

#include "cli.h"

enum { FLAGS_MAX = 64 }; /* per command; used to suggest a flag for a misspelled one */

int fail(int code, const char *fmt, ...)
{
    char raw[4096], said[4096], text[4096];
    va_list args;

    va_start(args, fmt);
    vsnprintf(raw, sizeof raw, fmt, args);
    va_end(args);
    screen_finish_line();
    fprintf(stderr, "weft: %s\n",
            weft_printable(job_words(raw, said, sizeof said), -1, text, sizeof text));
    return code;
}

int fail_status(weft_status st, const char *what)
{
    bool input = st == WEFT_ENOENT || st == WEFT_EPARSE || st == WEFT_EIO || st == WEFT_EDATA;

    return fail(input ? EXIT_INPUT : EXIT_FAILED, "%s%s%s", what, *what ? ": " : "", weft_error());
}

/* Number of UTF-8 characters. */
static int text_width(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void flag_head(const struct flag *f, char out[64])
{
    snprintf(out, 64, "--%s%s%s", f->name, f->arg ? " " : "", f->arg ? f->arg : "");
}

static void print_help(const struct command *c, const struct flag *flags)
{
    char left[64];
    int width = 16;

    printf("usage: weft %s%s%s [flags]\n\n%s\n", c->name, *c->args ? " " : "", c->args, c->summary);
    if (c->text)
        printf("\n%s", c->text);
    printf("\nflags:\n");
    for (const struct flag *f = flags; f->name; f++) {
        flag_head(f, left);
        width = text_width(left) > width && text_width(left) <= 30 ? text_width(left) : width;
    }
    for (const struct flag *f = flags; f->name; f++) {
        flag_head(f, left);
        printf("  %s%*s  %s\n", left, width > text_width(left) ? width - text_width(left) : 0, "",
               f->help);
    }
    printf("  %-*s  %s\n", width, "--help", "print this text");
}

static int unknown_flag(const struct command *c, const struct flag *flags, const char *word)
{
    const char *names[FLAGS_MAX], *near;
    int n = 0;

    while (n < FLAGS_MAX && flags[n].name) {
        names[n] = flags[n].name;
        n++;
    }
    near = weft_nearest(word, names, n);
    if (near)
        fail(EXIT_USAGE, "%s: no flag --%s, did you mean --%s?", c->name, word, near);
    else
        fail(EXIT_USAGE, "%s: no flag --%s; `weft %s --help` lists them", c->name, word, c->name);
    return -1;
}

struct meant did_you_mean(const char *near, const char *otherwise)
{
    struct meant m;

    if (near)
        snprintf(m.text, sizeof m.text, ", did you mean '%s'?", near);
    else
        snprintf(m.text, sizeof m.text, "%s", otherwise);
    return m;
}

bool check_word(const char *command, const char *flag, const char *word, const char *const *words,
                int n)
{
    const char *near = weft_nearest(word, words, n);
    char list[256] = "";
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        if (!strcmp(word, words[i]))
            return true;
        if (at < sizeof list)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? " " : "", words[i]);
    }
    fail(EXIT_USAGE, "%s: --%s takes one of %s, not '%s'%s", command, flag, list, word,
         did_you_mean(near, "").text);
    return false;
}

static int store(const struct command *c, const struct flag *f, const char *value)
{
    struct text_list *list = f->to;
    char *end;
    long n;

    switch (f->kind) {
    case FLAG_BOOL: *(bool *)f->to = true; return 0;
    case FLAG_TEXT: *(const char **)f->to = value; return 0;
    case FLAG_LIST:
        if (list->n == LIST_MAX) {
            fail(EXIT_USAGE, "%s: --%s is given more than %d times", c->name, f->name, LIST_MAX);
            return -1;
        }
        list->item[list->n++] = value;
        return 0;
    case FLAG_INT:
        errno = 0;
        n = strtol(value, &end, 10);
        if (!*value || *end || errno || n < 0 || n > 1000000000) {
            fail(EXIT_USAGE, "%s: --%s takes a whole number, not '%s'", c->name, f->name, value);
            return -1;
        }
        *(int *)f->to = (int)n;
        return 0;
    }
    return 0;
}

/* One flag at argv[*i], as "--flag=value" or with its value in the next argument. */
static int parse_one(const struct command *c, const struct flag *flags, int argc, char **argv,
                     int *i)
{
    char *word = argv[*i] + 2, *eq = strchr(word, '=');
    const struct flag *f = flags;

    if (eq)
        *eq = '\0';
    while (f->name && strcmp(f->name, word))
        f++;
    if (!f->name)
        return unknown_flag(c, flags, word);
    if (f->kind == FLAG_BOOL) {
        if (eq) {
            fail(EXIT_USAGE, "%s: --%s takes no value", c->name, word);
            return -1;
        }
        return store(c, f, NULL);
    }
    if (!eq && *i + 1 >= argc) {
        fail(EXIT_USAGE, "%s: --%s needs %s", c->name, word, f->arg);
        return -1;
    }
    return store(c, f, eq ? eq + 1 : argv[++*i]);
}

/* Lines of text as roff: a line that begins with . or ' is not a request. */
static void print_roff(const char *text)
{
    while (*text) {
        int n = (int)strcspn(text, "\n");

        printf("%s%.*s\n", *text == '.' || *text == '\'' ? "\\&" : "", n, text);
        text += n + (text[n] == '\n');
    }
}

/* The same table for the manual page (roff), and as words for completion. */
static void print_man(const struct command *c, const struct flag *flags)
{
    printf(".SS weft %s %s\n%s.\n", c->name, c->args, c->summary);
    if (c->text) {
        printf(".PP\n.nf\n");
        print_roff(c->text);
        printf(".fi\n");
    }
    for (const struct flag *f = flags; f->name; f++)
        printf(".TP\n\\fB\\-\\-%s\\fR%s%s\n%s\n", f->name, f->arg ? " " : "", f->arg ? f->arg : "",
               f->help);
}

static void print_words(const struct flag *flags)
{
    for (const struct flag *f = flags; f->name; f++)
        printf("--%s\n", f->name);
    printf("--help\n");
}

/* The words of "auto|bar|lines|json|none". Placeholders like FILE are not words, and - is not worth
 * completing. */
static void print_values(const struct flag *flags, const char *name)
{
    while (flags->name && strcmp(flags->name, name))
        flags++;
    for (const char *p = flags->arg && strchr(flags->arg, '|') ? flags->arg : ""; *p;) {
        int n = (int)strcspn(p, "|");

        if (islower((unsigned char)*p))
            printf("%.*s\n", n, p);
        p += n + (p[n] == '|');
    }
}

int parse_flags(const struct command *c, const struct flag *flags, int argc, char **argv)
{
    int n = 0;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            print_help(c, flags);
            return -2;
        }
        if (!strncmp(argv[i], FLAG_VALUES, sizeof FLAG_VALUES - 1)) {
            print_values(flags, argv[i] + sizeof FLAG_VALUES - 1);
            return -2;
        }
        if (!strcmp(argv[i], FLAG_MAN) || !strcmp(argv[i], FLAG_WORDS)) {
            if (!strcmp(argv[i], FLAG_MAN))
                print_man(c, flags);
            else
                print_words(flags);
            return -2;
        }
        if (strncmp(argv[i], "--", 2) || !argv[i][2]) {
            argv[n++] = argv[i];
            continue;
        }
        if (parse_one(c, flags, argc, argv, &i))
            return -1;
    }
    return n;
}

static void warn(void *arg, int level, const char *line)
{
    (void)arg;
    if (level >= WEFT_LOG_WARN)
        fail(0, "%s", line);
}

weft_status open_context(const struct machine_flags *m, weft_ctx **out)
{
    static const char *const levels[] = {"auto", "portable", "avx2", "avx512", "avx512bf16"};
    weft_ctx_opts o = {.size = sizeof o,
                       .threads = m->threads,
                       .memory_limit = (int64_t)m->memory_mb << 20,
                       .devices = m->devices,
                       .device_cache = m->device_cache,
                       .soft_placement = m->soft_placement,
                       .log = m->soft_placement ? warn : NULL};

    for (int i = 0; m->simd && i < 5; i++)
        if (!strcmp(m->simd, levels[i]))
            o.simd = (weft_simd)i;
    o.kernels =
        m->kernels && !strcmp(m->kernels, "portable") ? WEFT_KERNELS_PORTABLE : WEFT_KERNELS_BEST;
    return weft_ctx_new(&o, out);
}
