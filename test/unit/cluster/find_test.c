/* find_test.c - where the tasks of a job come from: text, files, TF_CONFIG, torchrun, Open MPI,
 * Slurm, as these systems really write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/spec.h"

static weft_ctx *ctx;

static int setup(void **state)
{
    (void)state;
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx);
}

static int teardown(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    return 0;
}

/* The tasks of a description as text, or the error. */
static void expect(const weft_cluster_opts *o, const char *source, const char *text)
{
    weft_cluster *c = NULL;
    weft_status st = weft_cluster_find(ctx, o, &c);

    if (st)
        fail_msg("%s", weft_error());
    assert_string_equal(weft_cluster_source(c), source);
    assert_string_equal(weft_cluster_text(c), text);
    weft_cluster_free(c);
}

static void refuse(const weft_cluster_opts *o, weft_status code, const char *part)
{
    weft_cluster *c = NULL;
    weft_status st = weft_cluster_find(ctx, o, &c);

    if (st != code || c)
        fail_msg("%d %s instead of: %s", (int)st, st ? weft_error() : "OK", part);
    if (!strstr(weft_error(), part))
        fail_msg("\"%s\" does not contain \"%s\"", weft_error(), part);
}

#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})
#define OPTS(...) WEFT_OPTS(weft_cluster_opts, __VA_ARGS__)

/* ---- text and files -------------------------------------------------------------------------- */

static void flags_name_every_task_and_addresses_get_a_transport(void **state)
{
    weft_cluster *c;
    weft_task t = {.size = sizeof t};

    (void)state;
    expect(OPTS(.tasks = "chief=tcp:a:7000; ps=b:7001,[::1]:7002;worker=2;evaluator=1",
                .task = "ps/1"),
           "flags: ps/1 of 1 chief, 2 ps, 2 workers, 1 evaluator",
           "chief=tcp:a:7000;ps=tls:b:7001,tls:[::1]:7002;worker=2;evaluator=1");
    expect(OPTS(.tasks = "worker=x:1,y:1;ps=uds:/tmp/p;chief=shm:/tmp/c", .transport = "tcp"),
           "flags: tasks of a job: 1 chief, 1 ps, 2 workers",
           "chief=shm:/tmp/c;ps=uds:/tmp/p;worker=tcp:x:1,tcp:y:1");
    assert_int_equal(
        weft_cluster_find(ctx, OPTS(.tasks = "chief=a:1;ps=b:2;worker=3", .task = "worker/2"), &c),
        WEFT_OK);
    assert_int_equal(weft_cluster_tasks(c), 5);
    assert_int_equal(weft_cluster_processes(c), 5);
    assert_int_equal(weft_cluster_task(c, 4, &t), WEFT_OK);
    assert_int_equal(t.role, WEFT_TASK_WORKER);
    assert_int_equal(t.index, 2);
    assert_true(t.here);
    assert_int_equal(weft_cluster_task(c, 5, &t), WEFT_ERANGE);
    weft_cluster_free(c);
}

static void flags_that_are_wrong_are_named(void **state)
{
    static const struct {
        const char *tasks, *task, *says;
        weft_status st;
    } rows[] = {
        {"chief", NULL, "'chief' is not ROLE=ADDRESSES", WEFT_EINVAL},
        {"cheif=a:1", NULL, "no role 'cheif', did you mean 'chief'?", WEFT_EINVAL},
        {"ps=a:1,", NULL, "an address of a ps is empty", WEFT_EINVAL},
        {"ps=3", NULL, "ps/0: address 'tls:3': expected tls:HOST:PORT", WEFT_EINVAL},
        {"ps=a:1;ps=b:1", NULL, "ps= is there twice", WEFT_EINVAL},
        {"chief=a:1;ps=a:1", NULL, "chief/0 and ps/0 have the same address, tls:a:1", WEFT_EINVAL},
        {"worker=99999", NULL, "worker=99999: 0 to 4096 are possible", WEFT_EINVAL},
        {"worker=-1", NULL, "worker=-1", WEFT_EINVAL},
        {"", NULL, "no tasks", WEFT_EINVAL},
        {"chief=a:1", "worker", "'worker' is not a task", WEFT_EINVAL},
        {"chief=a:1", "worker/1", "no task 'worker/1'; there are 0 of worker", WEFT_ENOENT},
        {"chief=a:99999", NULL, "'99999' is not a port", WEFT_EINVAL},
    };

    (void)state;
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++)
        refuse(OPTS(.tasks = rows[i].tasks, .task = rows[i].task), rows[i].st, rows[i].says);
    refuse(OPTS(.tasks = "chief=a:1", .transport = "udp"), WEFT_EINVAL, "transport 'udp'");
    refuse(OPTS(.port = 70000), WEFT_EINVAL, "port 70000");
    refuse(OPTS(.ps = -1), WEFT_EINVAL, "-1 servers");
    refuse(NULL, WEFT_ENOENT, "no cluster");
}

static void yaml(const char *text, const char *source, const char *tasks)
{
    weft_cluster c;
    weft_status st;

    wf_cluster_init(&c, ctx, NULL);
    st = wf_from_yaml(&c, "cluster.yaml", text, (int64_t)strlen(text));
    if (!st)
        st = wf_cluster_finish(&c);
    if (tasks) {
        if (st)
            fail_msg("%s", weft_error());
        assert_string_equal(c.said, source);
        assert_string_equal(c.text.data, tasks);
    } else {
        assert_int_not_equal(st, WEFT_OK);
        if (!strstr(weft_error(), source))
            fail_msg("\"%s\" does not contain \"%s\"", weft_error(), source);
    }
    wf_cluster_clear(&c);
}

static void a_file_has_roles_and_says_where_it_is_wrong(void **state)
{
    (void)state;
    yaml("# two machines\nchief: tls:a:7000\nps: [tls:a:7001, tls:b:7001]\nworker: 4\n",
         "cluster.yaml", "chief=tls:a:7000;ps=tls:a:7001,tls:b:7001;worker=4");
    yaml("chief: a:1\nps:\n  - b:2\nworker: [c, d]\nevaluator: 1\ntask: worker/1\n", "cluster.yaml",
         "chief=tls:a:1;ps=tls:b:2;worker=tls:c,tls:d;evaluator=1");
    yaml("chief: 1\n", "cluster.yaml:1:8: chief: a number", NULL);
    yaml("chief: a:1\nworkers: 2\n", "cluster.yaml:2:1: no role 'workers', did you mean 'worker'?",
         NULL);
    yaml("chief: a:1\nps: {a: 1}\n", "cluster.yaml:2:5: ps: a list of addresses", NULL);
    yaml("ps: [a:1, [b]]\n", "cluster.yaml:1:11: ps: an address is expected", NULL);
    yaml("chief: a:1\ntask: worker/0\n", "cluster.yaml:2:7: task: the file lists no worker/0",
         NULL);
    yaml("- a\n", "a cluster file has lines like", NULL);
    yaml("chief: a:1\nchief: b:1\n", "'chief' is given twice", NULL);
    yaml("worker: 5000\n", "5000 of them", NULL);
    yaml("chief: [a:1\n", "cluster.yaml:", NULL);
    refuse(OPTS(.file = "/nowhere/cluster.yaml"), WEFT_ENOENT, "/nowhere/cluster.yaml");
}

/* ---- TF_CONFIG ------------------------------------------------------------------------------- */

static void tf_config_of_keras_and_kubeflow(void **state)
{
    (void)state;
    /* TensorFlow's guide to parameter servers */
    expect(OPTS(.env = ENV("TF_CONFIG={\"cluster\": {\"worker\": [\"host1:port\", \"host2:2222\"], "
                           "\"ps\": [\"host3:2222\"], \"chief\": [\"host0:2222\"]}, \"task\": "
                           "{\"type\": \"worker\", \"index\": 1}}")),
           "TF_CONFIG: worker/1 of 1 chief, 1 ps, 2 workers",
           "chief=tls:host0:2222;ps=tls:host3:2222;worker=tls:host1:port,tls:host2:2222");
    /* Kubeflow's training operator: no chief, environment, index as it is in Go */
    expect(OPTS(.env = ENV("PATH=/bin",
                           "TF_CONFIG={\"cluster\":{\"ps\":[\"dist-mnist-ps-0.kubeflow.svc:2222\"],"
                           "\"worker\":[\"dist-mnist-worker-0.kubeflow.svc:2222\","
                           "\"dist-mnist-worker-1.kubeflow.svc:2222\"]},\"task\":{\"type\":"
                           "\"worker\",\"index\":0},\"environment\":\"cloud\"}")),
           "TF_CONFIG: chief/0 and worker/0 of 1 chief, 1 ps, 2 workers",
           "chief=tls:dist-mnist-worker-0.kubeflow.svc:2222;"
           "ps=tls:dist-mnist-ps-0.kubeflow.svc:2222;worker=tls:dist-mnist-worker-0.kubeflow.svc:"
           "2222,tls:dist-mnist-worker-1.kubeflow.svc:2222");
    /* AI Platform: master, the index a text, an evaluator that is not in the cluster */
    expect(
        OPTS(.env = ENV("TF_CONFIG={\"cluster\":{\"master\":[\"m:1\"],\"ps\":[\"p:1\"],"
                        "\"worker\":[\"w:1\"]},\"task\":{\"type\":\"evaluator\",\"index\":\"0\"},"
                        "\"job\":{\"scale_tier\":\"CUSTOM\"}}"),
             .transport = "tcp"),
        "TF_CONFIG: evaluator/0 of 1 chief, 1 ps, 1 worker, 1 evaluator",
        "chief=tcp:m:1;ps=tcp:p:1;worker=tcp:w:1;evaluator=1");
    /* a chief that trains alone */
    expect(OPTS(.env = ENV("TF_CONFIG={\"cluster\":{\"chief\":[\"m:1\"],\"ps\":[\"p:1\"]},"
                           "\"task\":{\"type\":\"chief\",\"index\":0}}")),
           "TF_CONFIG: chief/0 and worker/0 of 1 chief, 1 ps, 1 worker",
           "chief=tls:m:1;ps=tls:p:1;worker=1");
    /* some tasks of a role, by number */
    expect(OPTS(.env = ENV("TF_CONFIG={\"cluster\":{\"chief\":[\"m:1\"],\"worker\":{\"3\":\"w3:1\","
                           "\"1\":\"w1:1\"}},\"task\":{\"type\":\"worker\",\"index\":3}}")),
           "TF_CONFIG: worker/3 of 1 chief, 2 workers", "chief=tls:m:1;worker=tls:w1:1,tls:w3:1");
}

static void tf_config_that_is_wrong_is_named(void **state)
{
    static const struct {
        const char *env, *says;
    } rows[] = {
        {"TF_CONFIG={", "TF_CONFIG: "},
        {"TF_CONFIG=[]", "TF_CONFIG: "},
        {"TF_CONFIG={\"cluster\":[]}", "cluster is not an object"},
        {"TF_CONFIG={\"cluster\":{}}", "neither a chief nor a worker"},
        {"TF_CONFIG={\"cluster\":{\"worker\":\"a:1\"}}", "cluster.worker is not a list"},
        {"TF_CONFIG={\"cluster\":{\"worker\":[1]}}", "cluster.worker[0] is not a text"},
        {"TF_CONFIG={\"cluster\":{\"worker\":[\"a:1\",\"\"]}}", "cluster.worker[1] is empty"},
        {"TF_CONFIG={\"cluster\":{\"wroker\":[\"a:1\"]}}", "did you mean 'worker'?"},
        {"TF_CONFIG={\"cluster\":{\"worker\":{\"x\":\"a:1\"}}}", "'x' is not a number of a task"},
        {"TF_CONFIG={\"cluster\":{\"worker\":[\"a:1\"]},\"task\":3}", "task is not like"},
        {"TF_CONFIG={\"cluster\":{\"worker\":[\"a:1\"]},\"task\":{\"type\":\"worker\",\"index\":1}"
         "}",
         "task is worker 1, but the cluster has 1 of them"},
        {"TF_CONFIG={\"cluster\":{\"worker\":[\"a:1\"]},\"task\":{\"type\":\"worker\",\"index\":-1}"
         "}",
         "task.index is -1"},
        {"TF_CONFIG={\"cluster\":{\"worker\":[\"a:1\"]},\"task\":{\"type\":\"worker\",\"index\":1."
         "5}}",
         "task.index is not a number"},
        {"TF_CONFIG={\"cluster\":{\"worker\":[\"a\"]},\"task\":{\"type\":\"worker\",\"index\":0}}",
         "chief/0: address 'tls:a'"},
        {"TF_CONFIG={\"sparseCluster\":{\"worker\":{\"0\":\"a:1\"}}}", "enableDynamicWorker"},
    };

    (void)state;
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        weft_cluster *c = NULL;

        assert_int_not_equal(weft_cluster_find(ctx, OPTS(.env = ENV(rows[i].env)), &c), WEFT_OK);
        if (!strstr(weft_error(), rows[i].says))
            fail_msg("\"%s\" does not contain \"%s\"", weft_error(), rows[i].says);
    }
    /* one machine: there is no cluster */
    refuse(OPTS(.env = ENV("TF_CONFIG={\"environment\":\"cloud\"}")), WEFT_ENOENT, "no cluster");
}

/* ---- numbered processes ---------------------------------------------------------------------- */

#define SRUN(procid, nodeid)                                                          \
    "SLURM_JOB_ID=4711", "SLURM_STEP_ID=0", "SLURM_JOB_NODELIST=n[001-003,7],m2",     \
        "SLURM_STEP_NODELIST=n[001-003]", "SLURM_NTASKS=5", "SLURM_STEP_NUM_TASKS=5", \
        "SLURM_TASKS_PER_NODE=2(x2),1", "SLURM_STEP_TASKS_PER_NODE=2(x2),1",          \
        "SLURM_NODEID=" nodeid, "SLURM_PROCID=" procid

static void slurm_gives_hosts_to_processes(void **state)
{
    (void)state;
    expect(OPTS(.env = ENV(SRUN("0", "0"))),
           "Slurm, process 0 of 5: chief/0 and ps/0 of 1 chief, 1 ps, 4 workers",
           "chief=tls:n001:27110;ps=tls:n001:27111;worker=4");
    expect(OPTS(.env = ENV(SRUN("4", "2")), .ps = 3, .port = 9000, .transport = "tcp"),
           "Slurm, process 4 of 5: worker/1 of 1 chief, 3 ps, 2 workers",
           "chief=tcp:n001:9000;ps=tcp:n001:9001,tcp:n001:9002,tcp:n002:9003;worker=2");
    expect(OPTS(.env = ENV(SRUN("1", "1"), "SLURM_DISTRIBUTION=cyclic"), .ps = 2, .own_chief = true,
                .evaluators = 1),
           "Slurm, process 1 of 5: ps/0 of 1 chief, 2 ps, 1 worker, 1 evaluator",
           "chief=tls:n001:27110;ps=tls:n002:27111,tls:n003:27112;worker=1;evaluator=1");
    expect(OPTS(.env = ENV("SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=1",
                           "SLURM_JOB_NODELIST=box", "SLURM_NTASKS_PER_NODE=1")),
           "Slurm, process 0 of 1: chief/0 and ps/0 and worker/0 of 1 chief, 1 ps, 1 worker",
           "chief=tls:box:20000;ps=tls:box:20001;worker=1");
}

static void slurm_that_cannot_be_is_refused(void **state)
{
    (void)state;
    /* a batch script: not started by srun */
    refuse(OPTS(.env = ENV("SLURM_JOB_ID=1", "SLURM_PROCID=0", "SLURM_NTASKS=4",
                           "SLURM_JOB_NODELIST=n1")),
           WEFT_ENOENT, "srun");
    refuse(OPTS(.env = ENV(SRUN("4", "1"))), WEFT_EINVAL, "process 4 runs on machine 1");
    refuse(OPTS(.env = ENV(SRUN("5", "2"))), WEFT_EINVAL, "this is process 5 of 5");
    refuse(OPTS(.env = ENV(SRUN("x", "2"))), WEFT_EINVAL, "SLURM_PROCID=x: a number");
    refuse(OPTS(.env = ENV(SRUN("0", "0")), .ps = 5), WEFT_EINVAL, "none is left to compute");
    refuse(OPTS(.env = ENV(SRUN("0", "0")), .port = 65535), WEFT_EINVAL, "port 65536");
    refuse(OPTS(.env = ENV("SLURM_STEP_ID=0", "SLURM_PROCID=0")), WEFT_EINVAL,
           "SLURM_PROCID is set, but SLURM_NTASKS is not");
    refuse(OPTS(.env = ENV("SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=2")), WEFT_EINVAL,
           "SLURM_JOB_NODELIST is not");
    refuse(OPTS(.env = ENV("SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=4",
                           "SLURM_JOB_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=1(x2)")),
           WEFT_EINVAL, "SLURM_TASKS_PER_NODE=1(x2) is less than the 4 processes");
    refuse(OPTS(.env = ENV("SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=4",
                           "SLURM_JOB_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=2(x")),
           WEFT_EPARSE, "is not like \"2(x3),1\"");
    refuse(OPTS(.env = ENV("SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=9000",
                           "SLURM_JOB_NODELIST=n1")),
           WEFT_ELIMIT, "9000 processes");
}

static void mpirun_on_one_machine_and_on_several(void **state)
{
#define MPI "OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=8"
    (void)state;
    expect(OPTS(.env = ENV(MPI, "OMPI_COMM_WORLD_LOCAL_SIZE=8", "OMPI_COMM_WORLD_LOCAL_RANK=2")),
           "Open MPI, process 2 of 8: worker/0 of 1 chief, 2 ps, 6 workers",
           "chief=tls:127.0.0.1:7070;ps=tls:127.0.0.1:7071,tls:127.0.0.1:7072;worker=6");
    refuse(OPTS(.env = ENV(MPI, "OMPI_COMM_WORLD_LOCAL_SIZE=4")), WEFT_EINVAL,
           "4 of 8 processes run on this machine");
    expect(OPTS(.env = ENV(MPI, "OMPI_COMM_WORLD_LOCAL_SIZE=4"), .hosts = "a,b", .ps = 5),
           "Open MPI, process 2 of 8: ps/2 of 1 chief, 5 ps, 3 workers",
           "chief=tls:a:7070;ps=tls:a:7071,tls:a:7072,tls:a:7073,tls:a:7074,tls:b:7075;worker=3");
    /* inside a job of Slurm: it knows the names; mpirun, not srun, numbers the processes */
    expect(OPTS(.env = ENV(MPI, "OMPI_COMM_WORLD_LOCAL_SIZE=4", "SLURM_JOB_NODELIST=n[1-2]",
                           "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=2")),
           "Open MPI, process 2 of 8: worker/0 of 1 chief, 2 ps, 6 workers",
           "chief=tls:n1:7070;ps=tls:n1:7071,tls:n1:7072;worker=6");
    refuse(OPTS(.env = ENV(MPI, "OMPI_COMM_WORLD_LOCAL_SIZE=2"), .hosts = "a,b"), WEFT_EINVAL,
           "need more than the 2 machines");
    refuse(OPTS(.env = ENV("OMPI_COMM_WORLD_RANK=2")), WEFT_EINVAL, "OMPI_COMM_WORLD_SIZE is not");
}

static void torchrun_knows_the_first_machine(void **state)
{
#define TORCH                                                                       \
    "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1", \
        "MASTER_ADDR=node0", "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=none"
    (void)state;
    expect(OPTS(.env = ENV(TORCH)),
           "torchrun, process 5 of 8: worker/3 of 1 chief, 2 ps, 6 workers",
           "chief=tls:node0:29501;ps=tls:node0:29502,tls:node0:29503;worker=6");
    refuse(OPTS(.env = ENV(TORCH), .ps = 5), WEFT_EINVAL, "the machine of process 4 is not known");
    expect(OPTS(.env = ENV(TORCH), .ps = 5, .hosts = "fe80::1,n2"),
           "torchrun, process 5 of 8: worker/0 of 1 chief, 5 ps, 3 workers",
           "chief=tls:[fe80::1]:29501;ps=tls:[fe80::1]:29502,tls:[fe80::1]:29503,tls:[fe80::1]:"
           "29504,tls:[fe80::1]:29505,tls:n2:29506;worker=3");
    refuse(OPTS(.env = ENV("RANK=8", "WORLD_SIZE=8", "MASTER_ADDR=a")), WEFT_EINVAL,
           "process 8 of 8");
    refuse(OPTS(.env = ENV("RANK=0", "WORLD_SIZE=0", "MASTER_ADDR=a")), WEFT_EINVAL,
           "WORLD_SIZE=0: a number from 1");
    refuse(OPTS(.env = ENV("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=65535")),
           WEFT_EINVAL, "port 65536");
}

static void the_nearest_source_counts(void **state)
{
    (void)state;
    /* flags before TF_CONFIG before torchrun */
    expect(OPTS(.tasks = "chief=a:1", .env = ENV("TF_CONFIG={}", "RANK=0")),
           "flags: tasks of a job: 1 chief", "chief=tls:a:1");
    expect(OPTS(.env = ENV("TF_CONFIG={\"cluster\":{\"worker\":[\"a:1\"]}}", TORCH)),
           "TF_CONFIG: tasks of a job: 1 chief, 1 worker", "chief=tls:a:1;worker=tls:a:1");
    /* torchrun started by srun */
    expect(OPTS(.env = ENV(SRUN("0", "0"), TORCH)),
           "torchrun, process 5 of 8: worker/3 of 1 chief, 2 ps, 6 workers",
           "chief=tls:node0:29501;ps=tls:node0:29502,tls:node0:29503;worker=6");
}

static void the_plan_can_be_printed(void **state)
{
    weft_cluster *c;
    char *text;

    (void)state;
    assert_int_equal(
        weft_cluster_find(ctx, OPTS(.env = ENV(SRUN("1", "0")), .transport = "tcp"), &c), WEFT_OK);
    assert_int_equal(weft_cluster_explain(c, &text), WEFT_OK);
    assert_string_equal(text, "Slurm, process 1 of 5: worker/0 of 1 chief, 1 ps, 4 workers\n"
                              " process  task           address\n"
                              "       0  chief/0        tcp:n001:27110\n"
                              "          ps/0           tcp:n001:27111\n"
                              ">      1  worker/0       connects to the others\n"
                              "       2  worker/1       connects to the others\n"
                              "       3  worker/2       connects to the others\n"
                              "       4  worker/3       connects to the others\n");
    weft_text_free(ctx, text);
    weft_cluster_free(c);
}

/* ---- lists of machines ----------------------------------------------------------------------- */

static void hosts(const char *text, const char *names)
{
    struct wf_hosts h;
    char all[4096] = "";
    weft_status st = wf_hosts_parse(ctx, text, &h);

    for (int64_t i = 0; i < h.n && !st; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? " " : "", h.name[i]);
    wf_hosts_free(&h);
    assert_string_equal(st ? weft_error() : all, names);
}

static void brackets_of_slurm_are_expanded(void **state)
{
    (void)state;
    hosts("n[001-003,7],m2", "n001 n002 n003 n7 m2");
    hosts("host", "host");
    hosts("a,b.c-d_e", "a b.c-d_e");
    hosts("n[9-11]", "n9 n10 n11");
    hosts("n[09-11]x", "n09x n10x n11x");
    hosts("r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2");
    hosts("tux[0-1,5,8-9]", "tux0 tux1 tux5 tux8 tux9");
    hosts("", "list of machines \"\": a name is missing at character 1");
    hosts("a,,b", "list of machines \"a,,b\": a name is missing at character 3");
    hosts("n[1-2", "list of machines \"n[1-2\": a bracket that is not closed at character 2");
    hosts("n[2-1]", "list of machines \"n[2-1]\": a range that runs backwards at character 3");
    hosts("n[1-]", "list of machines \"n[1-]\": a range without its end at character 3");
    hosts("n[]", "list of machines \"n[]\": a number of 1 to 9 digits is expected at character 3");
    hosts("n[1;2]", "list of machines \"n[1;2]\": a comma or ']' is expected at character 4");
    hosts("n 1", "list of machines \"n 1\": a character that names of machines do not have at "
                 "character 2");
    hosts("n[0-999999999]", "list of machines \"n[0-999999999]\": more than 65536");
    hosts("n[0-9999]m[0-9999]", "list of machines \"n[0-9999]m[0-9999]\": more than 65536");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_name_every_task_and_addresses_get_a_transport),
        cmocka_unit_test(flags_that_are_wrong_are_named),
        cmocka_unit_test(a_file_has_roles_and_says_where_it_is_wrong),
        cmocka_unit_test(tf_config_of_keras_and_kubeflow),
        cmocka_unit_test(tf_config_that_is_wrong_is_named),
        cmocka_unit_test(slurm_gives_hosts_to_processes),
        cmocka_unit_test(slurm_that_cannot_be_is_refused),
        cmocka_unit_test(mpirun_on_one_machine_and_on_several),
        cmocka_unit_test(torchrun_knows_the_first_machine),
        cmocka_unit_test(the_nearest_source_counts),
        cmocka_unit_test(the_plan_can_be_printed),
        cmocka_unit_test(brackets_of_slurm_are_expanded),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
