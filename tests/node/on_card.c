/* Adds two columns of numbers on the first card, again and again for so many seconds; says what it did.

   It needs nothing but libc: the card's library is opened by name, and the program for the card is compiled by it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define COUNT (1 << 20)

static const char *program =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry add(.param .u64 sum, .param .u64 more, .param .u32 count) {\n"
    ".reg .pred %p; .reg .b32 %r<5>; .reg .b64 %d<4>; .reg .f32 %f<3>;\n"
    "ld.param.u64 %d1, [sum]; ld.param.u64 %d2, [more]; ld.param.u32 %r1, [count];\n"
    "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r2, %r2, %r3, %r4;\n"
    "setp.ge.u32 %p, %r2, %r1; @%p bra done;\n"
    "mul.wide.u32 %d3, %r2, 4; add.s64 %d1, %d1, %d3; add.s64 %d2, %d2, %d3;\n"
    "ld.global.f32 %f1, [%d1]; ld.global.f32 %f2, [%d2]; add.f32 %f1, %f1, %f2; st.global.f32 [%d1], %f1;\n"
    "done: ret;\n}\n";

static void *library;

static void *named(const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        printf("%s: not found\n", name);
        exit(1);
    }
    return found;
}

#define CALL(name, types, arguments)                                       \
    do {                                                                   \
        int (*call) types = (int (*) types)named(name);                    \
        int status = call arguments;                                       \
        if (status) {                                                      \
            printf("%s: error %d\n", name, status);                        \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

int main(int argc, char **argv) {
    int cards = 0, card = 0, rounds = 0;
    void *context, *module, *add;
    unsigned long long sum, more;
    unsigned count = COUNT;
    char text[256];
    static float ones[COUNT], sums[COUNT];
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 0);

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!(library = dlopen("libcuda.so.1", RTLD_NOW))) {
        printf("%s\n", dlerror());
        return 1;
    }
    CALL("cuInit", (unsigned), (0));
    CALL("cuDeviceGetCount", (int *), (&cards));
    CALL("cuDeviceGet", (int *, int), (&card, 0));
    CALL("cuDeviceGetName", (char *, int, int), (text, sizeof text, card));
    printf("%d cards, the first is %s\n", cards, text);
    CALL("cuCtxCreate_v2", (void **, unsigned, int), (&context, 0, card));
    CALL("cuMemAlloc_v2", (unsigned long long *, size_t), (&sum, sizeof sums));
    CALL("cuMemAlloc_v2", (unsigned long long *, size_t), (&more, sizeof ones));
    for (int i = 0; i < COUNT; i++) ones[i] = 1;
    CALL("cuMemcpyHtoD_v2", (unsigned long long, const void *, size_t), (sum, sums, sizeof sums));
    CALL("cuMemcpyHtoD_v2", (unsigned long long, const void *, size_t), (more, ones, sizeof ones));
    CALL("cuModuleLoadData", (void **, const void *), (&module, program));
    CALL("cuModuleGetFunction", (void **, void *, const char *), (&add, module, "add"));
    void *given[] = {&sum, &more, &count};
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) =
        (int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))
            named("cuLaunchKernel");
    do {
        for (int i = 0; i < 1000 && rounds < 1 << 23; i++, rounds++) launch(add, COUNT / 256, 1, 1, 256, 1, 1, 0, NULL, given, NULL);
        CALL("cuCtxSynchronize", (void), ());
    } while (time(NULL) < end);
    CALL("cuMemcpyDtoH_v2", (void *, unsigned long long, size_t), (sums, sum, sizeof sums));
    for (int i = 0; i < COUNT; i++)
        if (sums[i] != rounds) {
            printf("number %d is %f, not %d\n", i, sums[i], rounds);
            return 1;
        }
    printf("right after %d rounds\n", rounds);
    return 0;
}
