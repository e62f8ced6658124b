#include <stdlib.h>

#include "strategy/strategy.h"

void hf_answer_clear(struct hf_answer *answer)
{
    if (!answer->infos && !answer->cause) {
        *answer = (struct hf_answer){0};
        return;
    }
    for (size_t i = 0; i < answer->count; i++)
        hf_info_fini(&answer->infos[i]);
    free(answer->infos);
    free(answer->cause);
    *answer = (struct hf_answer){0};
}
