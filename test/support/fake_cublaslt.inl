/* fake_cublaslt.inl - cuBLASLt for fake_cuda.c: descriptions are structs of ours in the library's
 * opaque ones, and the heuristic has one algorithm. */

static cublasStatus_t fake_cublasLtCreate(cublasLtHandle_t *h)
{
    MAY_FAIL(CUBLAS_STATUS_NOT_INITIALIZED);
    *h = (cublasLtHandle_t)(void *)&n_calls;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cublasLtDestroy(cublasLtHandle_t h)
{
    (void)h;
    return CUBLAS_STATUS_SUCCESS;
}

static size_t fake_cublasLtGetVersion(void)
{
    return 130100;
}

static const char *fake_cublasLtGetStatusString(cublasStatus_t r)
{
    (void)r;
    return "a fault of the test";
}

static cublasStatus_t fake_cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t l, size_t size,
                                                             cudaDataType t, uint64_t rows,
                                                             uint64_t cols, int64_t ld)
{
    struct matrix m = {(int32_t)t, 1, rows, cols, ld, 0};

    MAY_FAIL(CUBLAS_STATUS_INVALID_VALUE);
    if (size < sizeof m)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(l, &m, sizeof m);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                            cublasLtMatrixLayoutAttribute_t a,
                                                            const void *v, size_t size)
{
    struct matrix *m = (struct matrix *)l;

    MAY_FAIL(CUBLAS_STATUS_INVALID_VALUE);
    memcpy(a == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? (void *)&m->batch : (void *)&m->step, v, size);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t d, size_t size,
                                                           cublasComputeType_t compute,
                                                           cudaDataType_t scale)
{
    struct product p = {.compute = (int32_t)compute,
                        .scale = (int32_t)scale,
                        .epilogue = CUBLASLT_EPILOGUE_DEFAULT};

    MAY_FAIL(CUBLAS_STATUS_INVALID_VALUE);
    if (size < sizeof p)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(d, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                                          cublasLtMatmulDescAttributes_t a,
                                                          const void *v, size_t size)
{
    struct product *p = (struct product *)d;

    MAY_FAIL(CUBLAS_STATUS_INVALID_VALUE);
    switch (a) {
    case CUBLASLT_MATMUL_DESC_TRANSA: memcpy(&p->trans_a, v, size); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: memcpy(&p->trans_b, v, size); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: memcpy(&p->epilogue, v, size); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: memcpy(&p->bias, v, size); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: memcpy(&p->aux, v, size); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: memcpy(&p->aux_ld, v, size); break;
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t p,
                                                                 size_t size)
{
    MAY_FAIL(CUBLAS_STATUS_INVALID_VALUE);
    memset(p, 0, size);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t a, const void *v,
    size_t size)
{
    (void)p, (void)a, (void)v, (void)size;
    MAY_FAIL(CUBLAS_STATUS_INVALID_VALUE);
    return CUBLAS_STATUS_SUCCESS;
}

enum { FAKE_ALGORITHMS = 3 };

static cublasStatus_t fake_cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t y, cublasLtMatmulPreference_t p, int n,
    cublasLtMatmulHeuristicResult_t out[], int *found)
{
    (void)h, (void)a, (void)b, (void)c, (void)y, (void)p;
    MAY_FAIL(CUBLAS_STATUS_NOT_SUPPORTED);
    if (plain_products && ((const struct product *)d)->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *found = n < FAKE_ALGORITHMS ? n : FAKE_ALGORITHMS;
    for (int i = 0; i < *found; i++) {
        memset(&out[i], 0, sizeof out[i]);
        out[i].algo.data[0] = (uint64_t)i;
        out[i].workspaceSize = (size_t)(1000 * (i + 1));
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t *a, cublasLtMatmulAlgoConfigAttributes_t what, void *to, size_t room,
    size_t *n)
{
    static const int32_t of[FAKE_ALGORITHMS][3] = {{66, 31, 1}, {66, 20, 2}, {66, 20, 1}};
    int k = what == CUBLASLT_ALGO_CONFIG_ID          ? 0
            : what == CUBLASLT_ALGO_CONFIG_TILE_ID   ? 1
            : what == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? 2
                                                     : -1;

    MAY_FAIL(CUBLAS_STATUS_INVALID_VALUE);
    if (k < 0 || room != sizeof(int32_t))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, &of[a->data[0]][k], room);
    *n = room;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cublasLtMatmul(
    cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void *alpha, const void *A,
    cublasLtMatrixLayout_t Adesc, const void *B, cublasLtMatrixLayout_t Bdesc, const void *beta,
    const void *C, cublasLtMatrixLayout_t Cdesc, void *D, cublasLtMatrixLayout_t Ddesc,
    const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes, cudaStream_t s)
{
    struct work w = {.what = PRODUCT, .from = A, .other = B, .to = D};

    (void)h, (void)beta, (void)C, (void)Cdesc, (void)algo;
    MAY_FAIL(CUBLAS_STATUS_EXECUTION_FAILED);
    if (workspace_bytes) /* whoever asked for it may write it */
        memset(workspace, 0x5a, workspace_bytes);
    memcpy(&w.p, desc, sizeof w.p);
    memcpy(&w.a, Adesc, sizeof w.a);
    memcpy(&w.b, Bdesc, sizeof w.b);
    memcpy(&w.d, Ddesc, sizeof w.d);
    w.alpha = w.p.scale == CUDA_R_64F ? *(const double *)alpha : *(const float *)alpha;
    enqueue((CUstream)s, &w);
    return CUBLAS_STATUS_SUCCESS;
}
