"""The strategies that the source defines, for scripts and tests."""
import os
import re

DEFINITION = re.compile(r'\bconst struct hf_strategy hf_strategy_(\w+) =\s*'
                        r'(?:STRATEGY\("([^"]+)"\)|\{\s*\.scheme = "([^"]+)")')


def sources(root, top):
    """(path below root, text) of each C file below `top`."""
    for folder, folders, names in os.walk(os.path.join(root, top)):
        folders.sort()
        for name in sorted(names):
            if name.endswith(('.c', '.h')):
                path = os.path.join(folder, name)
                with open(path, encoding='utf-8') as f:
                    yield os.path.relpath(path, root), f.read()


def read_strategies(root):
    """[(name, scheme, path)]: hf_strategy_NAME and where it is defined."""
    return [(match[1], match[2] or match[3], path)
            for path, text in sources(root, 'src/strategy')
            for match in DEFINITION.finditer(text)]
