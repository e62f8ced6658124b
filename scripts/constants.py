"""The numeric constants of C headers, for scripts that embed them elsewhere."""
import re

NUMBER = r'-?\d+'


def read_constants(headers):
    """{name: value as text} of enumerators, of #defines that are numbers, and
    of the lists HF_ERRORS and HF_EVENTS."""
    text = ''
    for header in headers:
        with open(header, encoding='utf-8') as f:
            text += f.read()
    constants = {'HF_OK': '0'}
    for name, value in re.findall(rf'\bX\((E\w+), ({NUMBER}), "', text):
        constants['HF_' + name] = value
    events = re.search(r'^#define HF_EVENTS\(X\)(?:.*\\\n)+.*', text, re.M)
    if events:
        for name, bit in re.findall(r'\bX\((\w+), "\w+", (\d+)\)',
                                    events.group()):
            constants['HF_EVENT_' + name] = str(1 << int(bit))
    constants.update(re.findall(rf'\b(HF_\w+) = ({NUMBER}),', text))
    constants.update(re.findall(rf'^#define (HF_\w+) ({NUMBER})\b', text,
                                re.M))
    return constants
