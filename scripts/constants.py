"""Read X-macro lists and numeric constants from the C headers."""
import re

NUMBER = r'-?\d+'


def read_list(text, name):
    """The rows of the X-macro `name`, each a list of its arguments as text."""
    macro = re.search(rf'^#define {name}\(X\)(?:.*\\\n)*.*', text, re.M)
    rows = re.findall(r'\bX\(((?:[^()"]|"[^"]*")*)\)',
                      macro.group() if macro else '')
    return [[argument.strip().strip('"') for argument in row.split(',', 2)]
            for row in rows]


def read_constants(headers):
    """{name: value as text} of enumerators, of #defines that are numbers, and
    of errors and event kinds."""
    text = ''
    for header in headers:
        with open(header, encoding='utf-8') as f:
            text += f.read()
    constants = {'HF_OK': '0'}
    for name, value, _ in read_list(text, 'HF_ERRORS'):
        constants['HF_' + name] = value
    for name, _, bit in read_list(text, 'HF_EVENTS'):
        constants['HF_EVENT_' + name] = str(1 << int(bit))
    constants.update(re.findall(rf'\b(HF_\w+) = ({NUMBER}),', text))
    constants.update(re.findall(rf'^#define (HF_\w+) ({NUMBER})\b', text,
                                re.M))
    return constants
