/* What the library exports. It is not in Go, where a function of this type would be declared otherwise than
 * in the header. */
#include "../clearway_plugin.h"

extern int goStart(void *plugin);

int clearway_plugin_start(const struct clearway_plugin *plugin) {
    return goStart((void *)plugin);
}
