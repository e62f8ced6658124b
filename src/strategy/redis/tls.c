#include "strategy/redis/tls.h"

#include <string.h>

#ifdef HF_REDIS_TLS

#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>

struct hf_redis_tls {
    SSL_CTX *context;
};

static enum hf_err fail_tls_option(struct hf_error *error, const char *option,
                                   const char *path)
{
    const char *reason = ERR_reason_error_string(ERR_get_error());

    return hf_error_set(error, HF_EINVAL, "url: %s: '%s': %s", option, path,
                        reason ? reason : "the file cannot be used");
}

static enum hf_err load_tls_files(struct hf_redis_tls *tls, struct hf_url *url,
                                  struct hf_error *error)
{
    const char *cacert = hf_url_param(url, "cacert");
    const char *cert = hf_url_param(url, "cert");
    const char *key = hf_url_param(url, "key");

    if (cacert ? SSL_CTX_load_verify_locations(tls->context, cacert, NULL) != 1
               : SSL_CTX_set_default_verify_paths(tls->context) != 1)
        return fail_tls_option(error, "cacert", cacert ? cacert : "");
    if (!cert != !key)
        return hf_error_set(error, HF_EINVAL,
                            "url: cert and key must be given together");
    if (cert && SSL_CTX_use_certificate_chain_file(tls->context, cert) != 1)
        return fail_tls_option(error, "cert", cert);
    if (key &&
        SSL_CTX_use_PrivateKey_file(tls->context, key, SSL_FILETYPE_PEM) != 1)
        return fail_tls_option(error, "key", key);
    return HF_OK;
}

enum hf_err hf_redis_tls_new(struct hf_url *url, struct hf_redis_tls **result,
                             struct hf_error *error)
{
    struct hf_redis_tls *tls;
    enum hf_err err;

    *result = NULL;
    if (strcmp(url->scheme, "rediss") != 0)
        return HF_OK;
    tls = calloc(1, sizeof(*tls));
    if (tls)
        tls->context = SSL_CTX_new(TLS_client_method());
    if (!tls || !tls->context) {
        free(tls);
        return hf_error_set_code(error, HF_ENOMEM);
    }
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    err = load_tls_files(tls, url, error);
    if (err)
        hf_redis_tls_free(tls);
    else
        *result = tls;
    return err;
}

void hf_redis_tls_free(struct hf_redis_tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->context);
    free(tls);
}

/* If redisInitiateSSL() succeeds, hiredis owns the session, so free it only on
 * failure. */
bool hf_redis_tls_begin(struct hf_redis_tls *tls, redisContext *context,
                        const char *host)
{
    SSL *ssl = SSL_new(tls->context);

    if (!ssl)
        return false;
    if (SSL_set1_host(ssl, host) != 1 ||
        SSL_set_tlsext_host_name(ssl, host) != 1 ||
        redisInitiateSSL(context, ssl) != REDIS_OK) {
        SSL_free(ssl);
        return false;
    }
    return true;
}

const char *hf_redis_tls_error_text(void)
{
    return ERR_reason_error_string(ERR_get_error());
}

#else

const char *hf_redis_tls_error_text(void)
{
    return NULL;
}

enum hf_err hf_redis_tls_new(struct hf_url *url, struct hf_redis_tls **tls,
                             struct hf_error *error)
{
    *tls = NULL;
    if (strcmp(url->scheme, "rediss") != 0)
        return HF_OK;
    return hf_error_set(error, HF_EUNSUPPORTED,
                        "url: rediss: this build is without TLS. Build it with "
                        "hiredis_ssl and OpenSSL");
}

void hf_redis_tls_free(struct hf_redis_tls *tls)
{
    (void)tls;
}

bool hf_redis_tls_begin(struct hf_redis_tls *tls, redisContext *context,
                        const char *host)
{
    (void)tls;
    (void)context;
    (void)host;
    return false;
}

#endif
