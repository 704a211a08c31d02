/* main.c - the weft command: finds the command of the table and runs it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "cli.h"

static const struct command *const commands[] = {
    &command_init,       &command_train,        &command_launch,       &command_node,
    &command_ctl,        &command_cert,         &command_eval,         &command_predict,
    &command_report,     &command_compare,      &command_history,      &command_summary,
    &command_keys,       &command_data_inspect, &command_data_convert, &command_data_stats,
    &command_ckpt_ls,    &command_ckpt_show,    &command_ckpt_verify,  &command_ckpt_diff,
    &command_ckpt_prune, &command_doctor,       &command_version,      &command_bench_train,
    &command_bench_data, &command_bench_net,    &command_bench_ps,     &command_explain,
    &command_run,
};
#define N_COMMANDS ((int)(sizeof commands / sizeof *commands))

static void print_usage(FILE *to)
{
    fprintf(to,
            "weft %s - trains neural networks\n\nusage: weft COMMAND [arguments] "
            "[flags]\n\ncommands:\n",
            weft_version());
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-14s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(
        to,
        "\n`weft help COMMAND` explains one. `weft man` prints the manual page, `weft completion "
        "bash|zsh|fish`\na script that makes the shell complete commands, flags and values.\n\n"
        "exit codes: 0 done, 1 the work failed, 2 the command line is invalid,\n"
        "            3 a file is missing, unreadable or malformed, 130 stopped by Ctrl-C\n");
}

/* How many words of argv match the command's name: all of them, or 0. */
static int matches(const struct command *c, int argc, char **argv)
{
    const char *p = c->name;
    int n = 0;

    while (*p) {
        size_t len = strcspn(p, " ");

        if (n >= argc || strlen(argv[n]) != len || strncmp(argv[n], p, len))
            return 0;
        n++;
        p += len + (p[len] == ' ');
    }
    return n;
}

/* Prints the commands that begin with these words ("data" for "data stats") and returns how many
 * there are. `to` NULL: prints nothing. */
static int print_group(FILE *to, int argc, char **argv)
{
    int found = 0;

    for (int i = 0; i < N_COMMANDS; i++) {
        const char *p = commands[i]->name;
        int k = 0;

        while (k < argc && !strncmp(p, argv[k], strlen(argv[k])) && p[strlen(argv[k])] == ' ')
            p += strlen(argv[k++]) + 1;
        if (k < argc)
            continue;
        if (to && !found)
            fprintf(to, "usage: weft %s COMMAND [arguments] [flags]\n\ncommands:\n", argv[0]);
        if (to)
            fprintf(to, "  %-14s %s\n", commands[i]->name, commands[i]->summary);
        found++;
    }
    if (to && found)
        fprintf(to, "\n`weft help %s COMMAND` explains one.\n", argv[0]);
    return found;
}

static int unknown_command(int argc, char **argv)
{
    const char *names[N_COMMANDS], *near;
    char two[128];

    for (int i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i]->name;
    if (argc == 2 && print_group(NULL, 1, argv + 1)) { /* "weft bench" alone: say what follows */
        print_group(stderr, 1, argv + 1);
        return fail(EXIT_USAGE, "`weft %s` needs a subcommand", argv[1]);
    }
    snprintf(two, sizeof two, "%s %s", argv[1], argc > 2 ? argv[2] : "");
    near = weft_nearest(two, names, N_COMMANDS);
    if (!near)
        near = weft_nearest(argv[1], names, N_COMMANDS);
    if (near)
        return fail(EXIT_USAGE, "no command '%s', did you mean `weft %s`?",
                    strchr(near, ' ') ? two : argv[1], near);
    return fail(EXIT_USAGE, "no command '%s'; `weft --help` lists them", argv[1]);
}

/* The manual page, from the same tables as --help. */
static int print_man(void)
{
    const char *path, *kind, *value, *help;

    printf(".TH WEFT 1 \"\" \"weft %s\"\n.SH NAME\nweft \\- trains neural networks\n.SH SYNOPSIS\n"
           ".B weft\nCOMMAND [arguments] [flags]\n.SH COMMANDS\n",
           weft_version());
    for (int i = 0; i < N_COMMANDS; i++) {
        char flag[] = FLAG_MAN, *argv[] = {"weft", flag, NULL};

        commands[i]->run(2, argv);
    }
    printf(".SH JOB FILES\nKeys of the YAML file that train, eval, predict, summary and report "
           "take.\n");
    for (int i = 0; weft_job_key_at(i, &path, &kind, &value, &help); i++)
        printf(".TP\n\\fB%s\\fR %s%s%s\n\\&%s\n", path, kind, *value ? ", default " : "", value,
               help);
    printf(".SH EXIT STATUS\n0 done, 1 the work failed, 2 the command line is invalid, 3 a "
           "file is missing, "
           "unreadable or malformed, 130 stopped by Ctrl-C.\n");
    return EXIT_DONE;
}

/* What may follow these words: subcommands, flags, or the values of the last flag ("--log",
 * "="). */
static int print_completions(int argc, char **argv)
{
    int last = argc - 1;

    if (argc && (!strcmp(argv[0], "help") || !strcmp(argv[0], "completion"))) {
        bool shells = *argv[0] == 'c';

        if (shells)
            printf("bash\nzsh\nfish\n");
        return shells ? EXIT_DONE : print_completions(argc - 1, argv + 1);
    }
    while (last > 0 && !strcmp(argv[last], "="))
        last--;
    for (int i = 0; i < N_COMMANDS; i++) {
        int n = matches(commands[i], argc, argv);
        char flag[256] = FLAG_WORDS, *words[] = {"weft", flag, NULL};

        if (!n)
            continue;
        if (last >= n && !strncmp(argv[last], "--", 2) && !strchr(argv[last], '=')) {
            snprintf(flag, sizeof flag, FLAG_VALUES "%s", argv[last] + 2);
        }
        commands[i]->run(2, words);
        return EXIT_DONE;
    }
    for (int i = 0; i < N_COMMANDS; i++) {
        const char *p = commands[i]->name;
        int k = 0;

        while (k < argc && !strncmp(p, argv[k], strlen(argv[k])) && p[strlen(argv[k])] == ' ')
            p += strlen(argv[k++]) + 1;
        if (k == argc)
            printf("%.*s\n", (int)strcspn(p, " "), p);
    }
    if (!argc)
        printf("help\nman\ncompletion\n");
    return EXIT_DONE;
}

/* Shells ask `weft --complete` what may follow, so these scripts never become outdated. */
static const struct shell {
    const char *name, *script;
} shells[] = {
    {"bash",
     "_weft()\n{\n"
     "    local words=(\"${COMP_WORDS[@]:1:COMP_CWORD-1}\") cur=${COMP_WORDS[COMP_CWORD]}\n"
     "    mapfile -t COMPREPLY < <(compgen -W \"$(weft --complete \"${words[@]}\" | sort -u)\" "
     "-- \"$cur\")\n"
     "}\ncomplete -o default -F _weft weft\n"},
    {"zsh", "#compdef weft\n"
            "_weft()\n{\n"
            "    local -a found\n"
            "    found=(${(fu)\"$(weft --complete ${words[2,CURRENT-1]})\"})\n"
            "    compadd -a found\n"
            "    _files\n"
            "}\n"
            "if [ \"$funcstack[1]\" = _weft ]; then _weft; else compdef _weft weft; fi\n"},
    {"fish", "complete -c weft -a "
             "'(set -l words (commandline -opc); weft --complete $words[2..-1] | sort -u)'\n"},
};

static int print_completion(int argc, char **argv)
{
    const char *want = argc > 2 ? argv[2] : "bash";
    int n = (int)(sizeof shells / sizeof *shells);

    for (int i = 0; i < n; i++)
        if (!strcmp(want, shells[i].name))
            return fputs(shells[i].script, stdout) < 0 ? EXIT_FAILED : EXIT_DONE;
    return fail(EXIT_USAGE, "completion: '%s' is not one of bash, zsh and fish", want);
}

/* Output that could not be written is a failure. */
static int leave(int rc)
{
    if ((fflush(stdout) || ferror(stdout)) && rc == EXIT_DONE)
        return fail(EXIT_FAILED, "cannot write to standard output");
    return rc;
}

/* Sets up the process. A closed standard stream (`>&-`) becomes /dev/null: otherwise the first file
 * opened would take its number, and messages would be written into that file. Exceeding the file
 * size limit (`ulimit -f`) is a write error with a message, not a signal that kills the process. */
static void settle_process(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
    signal(SIGXFSZ, SIG_IGN);
}

/* `weft help`, `weft help train`, `weft help data` */
static int help(int argc, char **argv)
{
    char flag[] = "--help", *words[] = {"weft", flag, NULL}, *all[8] = {"weft"};

    if (!argc) {
        print_usage(stdout);
        return EXIT_DONE;
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (matches(commands[i], argc, argv))
            return commands[i]->run(2, words);
    if (print_group(stdout, argc, argv))
        return EXIT_DONE;
    for (int i = 0; i < argc && i < 6; i++)
        all[i + 1] = argv[i];
    return unknown_command(argc < 6 ? argc + 1 : 7, all);
}

/* "weft data --help", "weft data help": help for a group of commands. */
static bool asks_for_group(int argc, char **argv)
{
    return argc == 3 && print_group(NULL, 1, argv + 1) &&
           (!strcmp(argv[2], "--help") || !strcmp(argv[2], "-h") || !strcmp(argv[2], "help"));
}

int main(int argc, char **argv)
{
    settle_process();
    if (argc < 2) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
        return leave(help(argc - 2, argv + 2));
    if (!strcmp(argv[1], "man") && argc == 2)
        return print_man();
    if (!strcmp(argv[1], "completion"))
        return leave(print_completion(argc, argv));
    if (!strcmp(argv[1], "--complete"))
        return print_completions(argc - 2, argv + 2);
    if (!strcmp(argv[1], "--version"))
        argv[1] = "version";
    for (int i = 0; i < N_COMMANDS; i++) {
        int n = matches(commands[i], argc - 1, argv + 1);

        if (n)
            return leave(commands[i]->run(argc - n, argv + n));
    }
    if (asks_for_group(argc, argv))
        return leave(help(1, argv + 1));
    return unknown_command(argc, argv);
}
