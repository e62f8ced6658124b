/* fault.c - map errors of libmongoc and MongoDB to error codes. */
#include <stdio.h>
#include <string.h>

#include "strategy/mongo/op.h"

/* Error codes of MongoDB: those with a name in src/mongo/base/error_codes.yml,
 * and 17419 and 17420, which are numbers of assertions in the code of
 * updates. */
enum {
    BAD_VALUE = 2,
    FAILED_TO_PARSE = 9,
    UNAUTHORIZED = 13,
    TYPE_MISMATCH = 14,
    OVERFLOWN = 15,
    AUTHENTICATION_FAILED = 18,
    COMMAND_NOT_FOUND = 59,
    INVALID_OPTIONS = 72,
    INVALID_NAMESPACE = 73,
    INDEX_OPTIONS_CONFLICT = 85,
    INDEX_KEY_SPECS_CONFLICT = 86,
    WRITE_CONFLICT = 112,
    COMMAND_NOT_SUPPORTED = 115,
    READ_CONCERN_NOT_YET = 134,
    CONVERSION_FAILURE = 241,
    ATLAS_ERROR = 8000,
    NOT_PRIMARY_LEGACY = 10058,
    NOT_WRITABLE_PRIMARY = 10107,
    OBJECT_TOO_LARGE = 10334,
    DUPLICATE_KEY = 11000,
    NOT_PRIMARY_NO_SECONDARY_OK = 13435,
    NOT_PRIMARY_OR_SECONDARY = 13436,
    RESULT_TOO_LARGE = 17419,
    UPSERT_TOO_LARGE = 17420,
    /* Almost every code from this number on stands for one assertion in the
     * sources, such as one about the types of operands in a pipeline. */
    FIRST_LOCATION = 15000,
};

/* Returns HF_EINDOUBT for all codes below FIRST_LOCATION that have no case
 * here. Among them are the codes of commands that were interrupted (shutdown,
 * stepdown, maxTimeMS), because it is unknown how far they got. */
static enum hf_err classify_server_error(uint32_t code)
{
    switch (code) {
    case NOT_PRIMARY_LEGACY:
    case NOT_WRITABLE_PRIMARY:
    case NOT_PRIMARY_NO_SECONDARY_OK:
    case NOT_PRIMARY_OR_SECONDARY:
    case DUPLICATE_KEY:
    case WRITE_CONFLICT:
    case READ_CONCERN_NOT_YET:
        return HF_EUNAVAIL;
    case UNAUTHORIZED:
    case AUTHENTICATION_FAILED:
    case ATLAS_ERROR:
        return HF_EDENIED;
    case COMMAND_NOT_FOUND:
    case COMMAND_NOT_SUPPORTED:
    case INVALID_OPTIONS:
    case INVALID_NAMESPACE:
    case INDEX_OPTIONS_CONFLICT:
    case INDEX_KEY_SPECS_CONFLICT:
        return HF_EINVAL;
    case OBJECT_TOO_LARGE:
    case RESULT_TOO_LARGE:
    case UPSERT_TOO_LARGE:
        return HF_ELIMIT;
    case BAD_VALUE: /* a pipeline fails with these on a corrupt document */
    case FAILED_TO_PARSE:
    case TYPE_MISMATCH:
    case OVERFLOWN:
    case CONVERSION_FAILURE:
        return HF_EPROTO;
    default:
        return code >= FIRST_LOCATION ? HF_EPROTO : HF_EINDOUBT;
    }
}

/* libmongoc reports every failed login with one code, even if the connection
 * was lost halfway. Only the message shows whether the server or libmongoc
 * refused the login. In any case no command was sent, so the failure is never
 * in doubt. */
static enum hf_err classify_login_error(const bson_error_t *fault)
{
    return strstr(fault->message, "Authentication failed") ||
                   strstr(fault->message, "mechanism") ||
                   strstr(fault->message, "username")
               ? HF_EDENIED
               : HF_EUNAVAIL;
}

static enum hf_err classify_error(const bson_error_t *fault)
{
    switch (fault->domain) {
    case MONGOC_ERROR_SERVER:
        return classify_server_error(fault->code);
    case MONGOC_ERROR_WRITE_CONCERN:
        /* the write was executed, but a failover may undo it */
        return HF_EINDOUBT;
    case MONGOC_ERROR_SERVER_SELECTION:
        return HF_EUNAVAIL;
    case MONGOC_ERROR_CLIENT:
        return fault->code == MONGOC_ERROR_CLIENT_AUTHENTICATE
                   ? classify_login_error(fault)
                   : HF_EINDOUBT;
    case MONGOC_ERROR_STREAM:
        return fault->code == MONGOC_ERROR_STREAM_CONNECT ||
                       fault->code == MONGOC_ERROR_STREAM_NAME_RESOLUTION ||
                       fault->code == MONGOC_ERROR_STREAM_NOT_ESTABLISHED
                   ? HF_EUNAVAIL
                   : HF_EINDOUBT;
    default:
        return HF_EINDOUBT;
    }
}

void hf_mongo_fault_set(struct hf_mongo_reply *reply, const bson_error_t *fault)
{
    reply->err = classify_error(fault);
    (void)snprintf(
        reply->cause, sizeof(reply->cause), "%s%s",
        reply->err == HF_EPROTO
            ? "the document of this key is corrupt or of a newer version: "
            : "",
        fault->message);
}

bool hf_mongo_fault_is_conflict(const bson_error_t *fault)
{
    return fault->domain == MONGOC_ERROR_SERVER &&
           (fault->code == DUPLICATE_KEY || fault->code == WRITE_CONFLICT);
}
