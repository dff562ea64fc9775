/* CUPTI without CUDA: takes one subscriber and passes on what the fake driver tells. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*Callback)(void *user, int domain, uint32_t number, const void *data);

static Callback subscriber;
static unsigned char enabled[8][1024];

int cuptiSubscribe(void **handle, Callback callback, void *user)
{
    (void)user;
    if (getenv("FAKE_CUPTI_REFUSES"))
        return 39;
    subscriber = callback;
    *handle = &subscriber;
    return 0;
}

int cuptiEnableCallback(uint32_t enable, void *handle, int domain, uint32_t number)
{
    (void)handle;
    /* As an older CUPTI, which does not know the newest functions. */
    if (number >= 720)
        return 7;
    enabled[domain][number] = (unsigned char)enable;
    return 0;
}

int cuptiEnableDomain(uint32_t enable, void *handle, int domain)
{
    (void)handle;
    memset(enabled[domain], (int)enable, sizeof enabled[domain]);
    return 0;
}

int cuptiGetResultString(int status, const char **words)
{
    *words = status == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR_UNKNOWN";
    return 0;
}

void fake_tell(int domain, uint32_t number, int site, const char *name, const void *arguments, int *result, const char *symbol)
{
    struct {
        int site;
        const char *name;
        const void *arguments;
        void *result;
        const char *symbol;
        void *context;
        uint32_t context_number;
        uint64_t *correlation;
        uint32_t correlation_number;
    } call = {site, name, arguments, result, symbol, (void *)11, 1, NULL, 1};
    if (subscriber == NULL || !enabled[domain][number])
        return;
    subscriber(NULL, domain, number, domain == 1 ? (const void *)&call : arguments);
}
