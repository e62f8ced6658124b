"""Read the planted bugs of tests/mutants/*.txt, and apply them to a copy of the
tree. README.md describes the format and how texts are matched."""
import glob
import os
import re
import shutil

from tree import list_files

FOLDER = 'tests/mutants'
SWITCH = f'{FOLDER}/switch.h'
COMMENT = re.compile(r'#|$')
HEADING = re.compile(r'(\d+)  *(\S.*)')


class Substitution:
    """One text in one file, and what replaces it."""

    def __init__(self, path):
        self.path = path
        self.old = []
        self.new = []


class Mutant:
    def __init__(self, number, name, where):
        self.number = number
        self.name = name
        self.where = where  # file and line of the entry
        self.tests = []  # each a tuple: program, then names of cases
        self.substitutions = []
        self.wrong = []  # why it cannot be applied

    def replacement(self, substitution):
        """The new text, with this bug's switch for the word MUTANT."""
        on = f'(planted_bug == {self.number})'
        if substitution.path.endswith('.json'):
            on = f'{{"$eq": ["$$planted_bug", {self.number}]}}'
        return re.sub(r'\bMUTANT\b', lambda _: on, '\n'.join(substitution.new))


# ---- Reading ---------------------------------------------------------------

class Reader:
    """Reads one file of entries, a line at a time."""

    def __init__(self, path):
        self.path = path
        self.mutants = []
        self.wrong = []  # lines that belong to no entry
        self.file = None
        self.substitution = None

    def read(self):
        with open(self.path, encoding='utf-8') as lines:
            for at, line in enumerate(lines, 1):
                self.read_line(f'{self.path}:{at}', line.rstrip())
        for mutant in self.mutants:
            check_complete(mutant)

    def read_line(self, where, line):
        heading = HEADING.fullmatch(line)
        if heading:
            self.mutants.append(Mutant(int(heading[1]), heading[2], where))
            self.file = self.substitution = None
        elif COMMENT.match(line):
            self.substitution = None
        elif not self.mutants or not self.read_part(self.mutants[-1], line):
            wrong = self.mutants[-1].wrong if self.mutants else self.wrong
            wrong.append(f'{where}: not understood: {line}')

    def read_part(self, mutant, line):
        word, _, rest = line.partition(' ')
        if word == 'test:':
            mutant.tests += [tuple(t.split()) for t in rest.split(',')]
            return all(mutant.tests)
        if word == 'file:':
            self.file = rest.strip()
            self.substitution = None
            return True
        if word not in ('-', '+') or not self.file:
            return False
        if not self.substitution or (word == '-' and self.substitution.new):
            self.substitution = Substitution(self.file)
            mutant.substitutions.append(self.substitution)
        old, new = self.substitution.old, self.substitution.new
        (old if word == '-' else new).append(rest)
        return True


def check_complete(mutant):
    if mutant.number == 0:
        return  # always applied: it brings the switch to where bugs need it
    if not mutant.tests:
        mutant.wrong.append(f'{mutant.where}: no test is named')
    if not any('MUTANT' in line for substitution in mutant.substitutions
               for line in substitution.new):
        mutant.wrong.append(f'{mutant.where}: no replacement has MUTANT in it')


def read_all():
    """(the mutants, what belongs to none of them and is wrong)"""
    mutants, wrong, seen = [], [], {}
    for path in sorted(glob.glob(f'{FOLDER}/*.txt')):
        reader = Reader(path)
        reader.read()
        mutants += reader.mutants
        wrong += reader.wrong
    for mutant in mutants:
        first = seen.setdefault(mutant.number or mutant.where, mutant)
        if first is not mutant:
            mutant.wrong.append(f'{mutant.where}: the number is taken by '
                                f'{first.where}')
    return mutants, wrong


# ---- Applying --------------------------------------------------------------

def pattern(lines):
    """Matches the same words and signs with any space between them."""
    tokens = re.findall(r'\w+|[^\w\s]', ' '.join(lines))
    made = ''
    for before, token in zip([''] + tokens, tokens):
        if re.match(r'\w', token):
            made += r'\s+' if re.match(r'\w', before) else r'\s*(?<!\w)'
        elif made:
            made += r'\s*'
        made += re.escape(token)
        made += r'(?!\w)' if re.match(r'\w', token) else ''
    return re.compile(re.sub(r'^\\s\*', '', made))


def find_text(mutant, substitution, texts):
    """Where the old text is, or None and a reason in mutant.wrong."""
    path = substitution.path
    if path not in texts:
        reason = 'there is no such file'
    elif not substitution.old:
        reason = 'an empty text cannot be found'
    else:
        found = list(pattern(substitution.old).finditer(texts[path]))
        if len(found) == 1:
            return found[0].span()
        reason = f'found {len(found)} times, must be once'
    mutant.wrong.append(f'{mutant.where}: {path}: {reason}: '
                        f'{" ".join(substitution.old)}')
    return None


def locate(mutants, texts):
    """Where each text is replaced: {path: [(start, end, mutant, substitution)]}.
    All are found in the text as it is without any bug."""
    edits = {}
    for mutant in mutants:
        spans = [(s, find_text(mutant, s, texts)) for s in mutant.substitutions]
        if mutant.wrong:
            continue
        for substitution, (start, end) in spans:
            there = edits.setdefault(substitution.path, [])
            for other in there:
                if start < other[1] and other[0] < end:
                    mutant.wrong.append(
                        f'{mutant.where}: {substitution.path}: overlaps '
                        f'{other[2].where}: {" ".join(substitution.old)}')
            there.append((start, end, mutant, substitution))
    return {path: [edit for edit in there if not edit[2].wrong]
            for path, there in edits.items()}


def apply(path, text, edits):
    """The text with its bugs. Lines that are added are indented like the line
    in which the text was found."""
    for start, end, mutant, substitution in sorted(edits, key=lambda e: -e[0]):
        line = text.rfind('\n', 0, start) + 1
        indent = re.match(r'[ \t]*', text[line:start])[0]
        new = mutant.replacement(substitution).replace('\n', '\n' + indent)
        text = text[:start] + new + text[end:]
    if edits and path.endswith(('.c', '.h')):
        switch = os.path.relpath(SWITCH, os.path.dirname(path))
        text = f'#include "{switch}"\n#line 1 "{path}"\n{text}'
    return text


# ---- The copy --------------------------------------------------------------

def read_bytes(path):
    try:
        with open(path, 'rb') as f:
            return f.read()
    except FileNotFoundError:
        return None


def remove_others(tree, files):
    """Remove what the copy has of files that are gone."""
    wanted = set(files)
    for folder, folders, names in os.walk(tree):
        if folder == tree and 'build' in folders:
            folders.remove('build')
        for name in names:
            path = os.path.join(folder, name)
            if os.path.relpath(path, tree) not in wanted:
                os.remove(path)


def read_texts(mutants):
    """The text of every file that an entry names."""
    paths = {s.path for m in mutants for s in m.substitutions}
    return {path: read_bytes(path).decode()
            for path in paths if os.path.isfile(path)}


def plant(mutants, tree):
    """Make `tree` a copy of this tree with the bugs in it. Files that would not
    change are left alone, so that only what has changed is compiled again."""
    files = list_files()
    remove_others(tree, files)
    texts = read_texts(mutants)
    edits = locate(mutants, texts)
    for path in files:
        content = read_bytes(path)
        if edits.get(path):
            content = apply(path, texts[path], edits[path]).encode()
        copy = os.path.join(tree, path)
        if read_bytes(copy) != content:
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            with open(copy, 'wb') as f:
                f.write(content)
        shutil.copymode(path, copy)
