"""Test cases of scripts, printed as TAP."""


def print_cases(cases):
    """Print (name, problems) of each case; a case without problems passes.
    Returns the exit status."""
    print(f'1..{len(cases)}')
    for number, (name, problems) in enumerate(cases, 1):
        print(f'{"not " if problems else ""}ok {number} - {name}')
        for problem in problems:
            print(f'# {problem}')
    return 1 if any(problems for _, problems in cases) else 0
