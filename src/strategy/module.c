#include "strategy/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Never unload the module (RTLD_NODELETE), because the libraries that it uses
 * start threads and register handlers, whose code must stay loaded. */
static void *load_object(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

/* Detect a program that was linked with -static. A module would load a second
 * libc into such a program, and crash. */
static int is_static(struct dl_phdr_info *program, size_t size, void *arg)
{
    bool *found = arg;

    (void)size;
    *found = true;
    for (unsigned i = 0; i < program->dlpi_phnum; i++) {
        if (program->dlpi_phdr[i].p_type == PT_INTERP)
            *found = false;
    }
    return 1; /* stop, because the first object is the program */
}

/* Write the path of `file` in the directory of the shared object that contains
 * this code. Returns false if this code is part of the program, because the
 * path of a program is not reliable. */
static bool find_beside(const char *file, char path[PATH_MAX])
{
    static const char here;
    const struct link_map *map = NULL;
    const char *slash;
    Dl_info info;

    if (!dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return false;
    slash = strrchr(map->l_name, '/');
    return slash &&
           snprintf(path, PATH_MAX, "%.*s/%s", (int)(slash - map->l_name),
                    map->l_name, file) < PATH_MAX;
}

/* A module beside the library has precedence. If that module exists and cannot
 * be loaded, do not load a module from another directory. */
static void *load_module(const char *file)
{
    char path[PATH_MAX];

    if (find_beside(file, path) && access(path, F_OK) == 0)
        return load_object(path);
    return load_object(file);
}

enum hf_err hf_module_find(const char *file, const char *scheme,
                           const struct hf_strategy **found,
                           struct hf_error *error)
{
    const struct hf_module *module;
    bool in_static_program = false;
    void *object;

    (void)dl_iterate_phdr(is_static, &in_static_program);
    if (in_static_program)
        return hf_error_set(error, HF_EUNSUPPORTED,
                            "url: '%s:' needs a module, which a program linked "
                            "with -static cannot load; link the program with "
                            "the shared libc",
                            scheme);
    object = load_module(file);
    if (!object)
        return hf_error_set(error, HF_EUNSUPPORTED,
                            "url: '%s:' needs a module that cannot be loaded; "
                            "check that it is installed: %s",
                            scheme, dlerror());
    module = dlsym(object, HF_MODULE_SYMBOL);
    if (!module || strcmp(module->version, HF_VERSION) != 0)
        return hf_error_set(error, HF_EUNSUPPORTED,
                            "url: '%s:': the module %s does not belong to "
                            "holdfast %s; install both from the same release",
                            scheme, file, HF_VERSION);
    for (const struct hf_strategy *const *at = module->strategies; *at; at++) {
        if (!strcmp((*at)->scheme, scheme)) {
            *found = *at;
            return HF_OK;
        }
    }
    return hf_error_set(error, HF_EUNSUPPORTED,
                        "url: the module %s has no strategy '%s:'", file,
                        scheme);
}
