/* Plugins in Java: this library starts a virtual machine. `config` is its class path, where a class `Example`
 * has `static byte[] handle(byte[] question)`. Build it with
 *
 *     cc -shared -fPIC -O2 -o host.so host.c -I$JAVA_HOME/include -I$JAVA_HOME/include/linux \
 *         -L$JAVA_HOME/lib/server -Wl,-rpath,$JAVA_HOME/lib/server -ljvm -lpthread
 */
#include <jni.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "../clearway_plugin.h"

#define THREADS 4

static JavaVM *machine;
static jclass example;
static jmethodID handle;

static const uint8_t failed[] = "\1\4\0\0\1\0\0\0\7\0\0\0\3\0\0\0:status500";

static void answer(JNIEnv *env, const struct clearway_plugin *plugin, uint64_t call,
                   const uint8_t *question, uint32_t length) {
    jbyteArray given = (*env)->NewByteArray(env, (jsize)length), made = NULL;
    if (given != NULL) {
        (*env)->SetByteArrayRegion(env, given, 0, (jsize)length, (const jbyte *)question);
        made = (*env)->CallStaticObjectMethod(env, example, handle, given);
    }
    if ((*env)->ExceptionCheck(env) || made == NULL) {
        (*env)->ExceptionDescribe(env);
        plugin->answer(plugin, call, failed, sizeof failed - 1);
    } else {
        jsize count = (*env)->GetArrayLength(env, made);
        jbyte *bytes = (*env)->GetByteArrayElements(env, made, NULL);
        plugin->answer(plugin, call, (const uint8_t *)bytes, (uint32_t)count);
        (*env)->ReleaseByteArrayElements(env, made, bytes, JNI_ABORT);
    }
    (*env)->DeleteLocalRef(env, given);
    (*env)->DeleteLocalRef(env, made);
}

static void *run(void *argument) {
    const struct clearway_plugin *plugin = argument;
    uint8_t *question = malloc(plugin->message_max);
    JNIEnv *env = NULL;
    if (question == NULL ||
        (*machine)->AttachCurrentThreadAsDaemon(machine, (void **)&env, NULL) != JNI_OK) {
        return NULL;
    }
    for (;;) {
        uint32_t length = 0;
        uint64_t call = plugin->next(plugin, 1000, &length);
        if (call == CLEARWAY_CLOSED) {
            (*machine)->DetachCurrentThread(machine);
            free(question);
            return NULL;
        }
        if (call != CLEARWAY_NOTHING) {
            answer(env, plugin, call, question, plugin->read(plugin, call, 0, question, length));
        }
    }
}

/* On a thread of its own, as it wants a large stack. The argument, if there is a machine with the class in
 * it. */
static void *start_machine(void *argument) {
    const struct clearway_plugin *plugin = argument;
    char path[4096];
    snprintf(path, sizeof path, "-Djava.class.path=%s", plugin->config);
    /* Signals are the server's. */
    JavaVMOption options[] = {{path, NULL}, {"-Xrs", NULL}};
    JavaVMInitArgs arguments = {JNI_VERSION_1_8, 2, options, JNI_FALSE};
    JNIEnv *env = NULL;
    if (JNI_CreateJavaVM(&machine, (void **)&env, &arguments) != JNI_OK) {
        return NULL;
    }
    jclass found = (*env)->FindClass(env, "Example");
    if (found != NULL) {
        example = (*env)->NewGlobalRef(env, found);
        handle = (*env)->GetStaticMethodID(env, example, "handle", "([B)[B");
    }
    (*env)->ExceptionDescribe(env);
    (*machine)->DetachCurrentThread(machine);
    return handle == NULL ? NULL : argument;
}

int clearway_plugin_start(const struct clearway_plugin *plugin) {
    pthread_t thread;
    void *done = NULL;
    if (plugin->version != CLEARWAY_PLUGIN_VERSION) {
        return 1;
    }
    if (pthread_create(&thread, NULL, start_machine, (void *)plugin) != 0 ||
        pthread_join(thread, &done) != 0 || done == NULL) {
        return 2;
    }
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&thread, NULL, run, (void *)plugin) != 0) {
            return 3;
        }
        pthread_detach(thread);
    }
    return 0;
}
