/* fault.c - what it means when a command fails. */
#include <stdio.h>

#include "strategy/mongo/command.h"

/* MongoDB's numbers: src/mongo/base/error_codes.yml in its sources. */
enum {
    HOST_UNREACHABLE = 6,
    UNAUTHORIZED = 13,
    AUTHENTICATION_FAILED = 18,
    MAX_TIME_EXPIRED = 50,
    NETWORK_TIMEOUT = 89,
    SHUTDOWN_IN_PROGRESS = 91,
    WRITE_CONFLICT = 112,
    READ_CONCERN_NOT_YET = 134,
    PRIMARY_STEPPED_DOWN = 189,
    EXCEEDED_TIME_LIMIT = 262,
    NOT_WRITABLE_PRIMARY = 10107,
    OBJECT_TOO_LARGE = 10334,
    INTERRUPTED_AT_SHUTDOWN = 11600,
    INTERRUPTED = 11601,
    INTERRUPTED_BY_STATE_CHANGE = 11602,
    DUPLICATE_KEY = 11000,
    NOT_PRIMARY_NO_SECONDARY_OK = 13435,
    NOT_PRIMARY_OR_SECONDARY = 13436,
    RESULT_TOO_LARGE = 17419,
    UPSERT_TOO_LARGE = 17420,
};

static enum hf_err server_fault(uint32_t code)
{
    switch (code) {
    case NOT_WRITABLE_PRIMARY:
    case NOT_PRIMARY_NO_SECONDARY_OK:
    case NOT_PRIMARY_OR_SECONDARY:
    case DUPLICATE_KEY:
    case WRITE_CONFLICT:
    case READ_CONCERN_NOT_YET:
        return HF_EUNAVAIL;
    case HOST_UNREACHABLE:
    case MAX_TIME_EXPIRED:
    case NETWORK_TIMEOUT:
    case SHUTDOWN_IN_PROGRESS:
    case PRIMARY_STEPPED_DOWN:
    case EXCEEDED_TIME_LIMIT:
    case INTERRUPTED_AT_SHUTDOWN:
    case INTERRUPTED:
    case INTERRUPTED_BY_STATE_CHANGE:
        return HF_EINDOUBT;
    case UNAUTHORIZED:
    case AUTHENTICATION_FAILED:
        return HF_EINVAL;
    case OBJECT_TOO_LARGE:
    case RESULT_TOO_LARGE:
    case UPSERT_TOO_LARGE:
        return HF_ELIMIT;
    default:
        return HF_EPROTO;
    }
}

static enum hf_err meaning(const bson_error_t *why)
{
    switch (why->domain) {
    case MONGOC_ERROR_SERVER:
        return server_fault(why->code);
    case MONGOC_ERROR_WRITE_CONCERN:
        return HF_EINDOUBT; /* done, but who knows for how long */
    case MONGOC_ERROR_SERVER_SELECTION:
        return HF_EUNAVAIL;
    case MONGOC_ERROR_CLIENT:
        return why->code == MONGOC_ERROR_CLIENT_AUTHENTICATE ? HF_EINVAL
                                                             : HF_EINDOUBT;
    case MONGOC_ERROR_STREAM:
        return why->code == MONGOC_ERROR_STREAM_CONNECT ||
                       why->code == MONGOC_ERROR_STREAM_NAME_RESOLUTION ||
                       why->code == MONGOC_ERROR_STREAM_NOT_ESTABLISHED
                   ? HF_EUNAVAIL
                   : HF_EINDOUBT;
    default:
        return HF_EINDOUBT;
    }
}

void hf_mongo_fault(struct hf_mongo_reply *reply, const bson_error_t *why)
{
    reply->err = meaning(why);
    (void)snprintf(reply->cause, sizeof(reply->cause), "%s%s",
                   reply->err == HF_EPROTO
                       ? "what is stored under this key is not understood: "
                       : "",
                   why->message);
}

bool hf_mongo_lost_a_race(const bson_error_t *why)
{
    return why->domain == MONGOC_ERROR_SERVER &&
           (why->code == DUPLICATE_KEY || why->code == WRITE_CONFLICT);
}
