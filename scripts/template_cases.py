"""The templates whose expected outputs scripts/make_template_fixtures.py writes: expressions and whole templates."""

# One expression a line; each is rendered as {{ ... }}.
EXPRESSIONS = r"""1 + 2 * 3
(1 + 2) * 3
7 // 2
-7 // 2
7 // -2
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
7 / 2
6 / 2
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
1.5 + 1
0.1 + 0.2
1e3
1_000
0x1F + 0b11 + 0o17
10 - 3 - 2
n - neg
+n
-n
- n|abs
-1|abs
'a' 'b' "c"
'a\nb\tA\x41é\'\"\\ \q \101'
s + '!'
s ~ n ~ f ~ nil ~ yes ~ undefined_name
's' * 3
[1] * 3
[1, 2] + [3]
(1,) + (2,)
'%s is %d and %.2f' % ('x', 3, 2.5)
'%5d|%-5d|%05d|%+d|%x|%r|%%' % (42, 42, 42, 42, 255, 'q')
'%s' % l
1 == 1.0
true == 1
'a' == 'a'
'1' == 1
nil == none
[1, 2] == [1, 2]
d == d
l == (3, 1, 2)
1 < 2 < 3
1 < 3 < 2
'a' < 'b'
[1, 2] < [1, 3]
3 >= 3.0
1 != 2
'ell' in s
'x' in s
2 in l
'a' in d
'z' not in d
not 'z' in d
1 in undefined_name
n and s
zero and s
zero or s
empty or nil or 'last'
not zero
not not n
yes if n > 5 else no
'x' if no
('x' if no) is defined
'a' if no else 'b' if yes else 'c'
l[0]
l[-1]
l[10]
l[1:]
l[:-1]
l[::-1]
l[::2]
l[5:1]
s[0]
s[-1]
s[1:4]
s[::-1]
s[::3]
s[-5:]
u[6:8]
u[::-1]
u|length
d.a
d['a']
d['items']
d.missing
d.missing is defined
d.c is none
nested[0][1][1]
nested.0.1
people[0].name
people[0]['tags'][1]
undefined_name
undefined_name is undefined
undefined_name|length
undefined_name == other_undefined
undefined_name|default('d')
nil|default('d')
nil|default('d', true)
empty|d('e', boolean=true)
[]
[1, 'a', none, true, 1.5, [2], {'k': 'v'}]
(1, 2)
(1,)
()
{}
{'a': 1, 'b': [1, 2], 3: none}
{'a': 1, 'a': 2}
nested
d
quote
[quote]
["it's", 'say "x"']
[u, '\x7f', '​', 'é']
f
big
tiny
third
whole
100000000000000000.0
1e16
123456789012345.6
0.0001
0.00001
-0.0
f|string
whole|string
yes|string
nil|string
l|string
s|upper
s|lower
u|upper
'ǆ'|upper
words|join(', ')
l|join
people|join('-', attribute='name')
words|first
words|last
[]|first
s|first
s|last
l|length
d|length
s|length
s|count
l|sum
people|sum(attribute='age')
l|sum(start=10)
l|sort
l|sort(reverse=true)
words|sort
words|sort(case_sensitive=true)
people|sort(attribute='age')|map(attribute='name')|list
words|unique|list
words|unique(case_sensitive=true)|list
l|min
l|max
words|min
people|max(attribute='age')
[]|max
words|map('upper')|list
words|map('replace', 'p', 'P')|join(' ')
people|map(attribute='name')|join(',')
people|map(attribute='tags.0', default='none')|list
people|map(attribute='city', default='?')|list
[1, 2, 3, 4]|select('odd')|list
[1, 2, 3, 4]|reject('odd')|list
[0, 1, '', 'a']|select|list
['a', 'b']|reject('equalto', 'a')|join(', ')
people|selectattr('age', 'equalto', 30)|map(attribute='name')|list
people|selectattr('tags')|list|length
people|rejectattr('age', 'gt', 26)|map(attribute='name')|list
l|reverse|list
s|reverse
l|list
s|list
d|list
d|items|list
d.items()|list
d.keys()|list
d.values()|list
d.get('a')
d.get('zz')
d.get('zz', 'other')
d|dictsort
d|dictsort(reverse=true)
{'B': 1, 'a': 2}|dictsort
{'B': 1, 'a': 2}|dictsort(case_sensitive=true)
{'x': 2, 'y': 1}|dictsort(by='value')
[1, 2, 3, 4, 5]|batch(2)|list
[1, 2, 3, 4, 5]|batch(2, 'x')|list
spaces|trim
'xxaxx'|trim('x')
'--a-'|trim('-')
s|replace('l', 'L')
s|replace('l', 'L', 1)
'abc'|replace('', '-')
s|title
'foo-bar (baz) QUX it\'s'|title
'foo-bar (baz) QUX it\'s'.title()
s|capitalize
'HELLO'.capitalize()
lines|indent
lines|indent(2, true)
lines|indent(2, first=true, blank=true)
lines|indent('> ')
s|center(20)
'abc'|center(8)
'ab'|center(7)
'foo bar baz qux'|truncate(9)
'foo bar baz qux'|truncate(9, true)
'foo bar baz qux'|truncate(11)
'foo bar baz qux'|truncate(9, true, '..', 0)
'Hello, World wide'|wordcount
'42'|int
'x'|int
'x'|int(5)
'3.7'|int
' 12 '|int
'1_000'|int
'ff'|int(0, 16)
'0xff'|int(0, 16)
3.9|int
true|int
nil|int
'1.5'|float
'x'|float
'1e3'|float
3|float
3.14159|round(2)
2.5|round
3.5|round
2.675|round(2)
2.1|round(0, 'ceil')
2.9|round(method='floor')
7|round
1234.5678|round(1, 'floor')
neg|abs
html|e
html|escape|safe
(html|safe) + '<b>'
'<b>' + (html|e)
html|safe ~ '<b>'
html|safe
[html|safe]
html|forceescape
nested|tojson
d|tojson
d|tojson(indent=2)
d|tojson(indent=4)
[]|tojson
[]|tojson(indent=2)
{}|tojson(indent=2)
nested|tojson(indent=2)
u|tojson
u|tojson(ensure_ascii=true)
quote|tojson
html|tojson
big|tojson
tiny|tojson
whole|tojson
yes|tojson
nil|tojson
nil|selectattr('x')|list
nil|map('upper')|list
zero|reject('odd')|list
(1, 2)|tojson
{'b': 1, 'a': 2}|tojson(sort_keys=true)
d|tojson(separators=(',', ':'))
'a%sb'|format(1)
'%s %s'|format('a', 'b')
s.upper()
s.lower()
spaces.strip()
spaces.lstrip()
spaces.rstrip()
'xxaxx'.strip('x')
'</think>abc'.lstrip('</think>')
s.startswith('Hell')
s.startswith(('x', 'H'))
s.endswith('World')
s.split(', ')
s.split('l')
s.split('l', 1)
s.rsplit('l', 1)
' a  b '.split()
'a b c'.split(none, 1)
''.split(',')
''.split()
'a</think>b</think>c'.split('</think>')[-1]
s.partition(', ')
s.rpartition('l')
s.partition('zzz')
lines.splitlines()
s.replace('l', 'L')
s.replace('l', 'L', 1)
', '.join(words)
s.find('o')
s.rfind('o')
s.find('zz')
s.index('W')
u.find('京')
s.count('l')
'abc'.isdigit()
'123'.isdigit()
'abc'.isalpha()
'a1'.isalnum()
' '.isspace()
'abc'.islower()
'ABC'.isupper()
'foobar'.removeprefix('foo')
'foobar'.removesuffix('bar')
'ab'.ljust(4, '.') ~ 'cd'.rjust(4)
'{} and {}'.format('a', 1)
'{0}{1}{0} {x}'.format('a', 'b', x=2)
'{{}}'.format()
l.index(2)
words.count('fig')
n is defined
n is number
n is integer
f is float
yes is number
yes is integer
yes is boolean
n is boolean
s is string
s is mapping
d is mapping
d is iterable
d is sequence
s is iterable
s is sequence
n is iterable
l is sequence
l is iterable
l is mapping
undefined_name is iterable
undefined_name is sequence
undefined_name is none
nil is none
nil is not none
yes is true
n is true
no is false
zero is false
n is odd
n is even
n is divisibleby 7
n is divisibleby(2)
n is eq 7
n is ne(7)
n is gt 6
n is lt 7
n is ge 7
n is le 6
'abc' is lower
'ABC' is upper
'a' is in 'abc'
'x' is in ['x']
nil is sameas none
yes is sameas true
range is callable
s is callable
s is not string
not s is string
'upper' is filter
'nope' is filter
'odd' is test
html|e is escaped
d.items() is mapping
range(5)|list
range(2, 8, 3)|list
range(5, 0, -2)|list
range(0)|list
dict(a=1, b=2)
dict([('x', 1), ('y', 2)])
namespace(a=1).a
namespace(a=1).b is defined
strftime_now('%d %b %Y')
strftime_now('%Y-%m-%d %H:%M:%S %A %a %B %j %p %I %y')
strftime_now('%-d/%-m %e %%')
[x for x in l]
people|map(attribute='age')|unique|sort|join('/')
(n > 3 and s) or 'no'
n > 3 and not no
[1, 2, 3][1:]|length
{'a': {'b': {'c': 1}}}.a.b.c
'a' ~ 'b' * 2
1 ~ 2 + 3
'abc'[1] ~ 'abc'[-1:]
(l|length) - 1
l|length - 1
messages|length
s|upper|lower|title
'a' in 'abc' and 'b' in 'abc'
not true == false
l[n - 7]
l[true]
d[nil]
loop is defined
''|length == 0
'a,b,,c'.split(',')
'x'.join(['a', 'b', 'c'])
s|attr('upper') is callable
d|attr('a') is defined
1 if true
[1, 2,]
{'a': 1,}
'\u00e9\U0001F642'
1.0 == 1
0.1 + 0.7
1/3
2.5e-10
1e100
-1.5|abs
'%.3f' % 2
'%e' % 12345.678
'%g' % 0.0001
'%s' % nil
'%s' % (u,)
"it's"|tojson
3 % 2.5
2 * 'ab'
true + true
true ~ false
"""

# Whole templates: statements, scopes, white space.
TEMPLATES = [
    "{% if n > 5 %}big{% elif n > 2 %}mid{% else %}small{% endif %}",
    "{% if no %}a{% elif nil %}b{% elif yes %}c{% else %}d{% endif %}",
    "{% for x in l %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for x in l %}{{ loop.index }}/{{ loop.length }} {{ loop.index0 }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }}\n{% endfor %}",
    "{% for x in l %}{{ loop.previtem is defined }}{{ loop.previtem }}-{{ x }}-{{ loop.nextitem }}{{ loop.nextitem is defined }};{% endfor %}",
    "{% for x in [] %}a{% else %}empty{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}:{{ x }} {% else %}none{% endfor %}",
    "{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }} {% endfor %}",
    "{% for c in u %}{{ c }}|{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3)), (4, (5, 6))] %}{{ a }}{{ b }}{{ c }} {% endfor %}",
    "{% for x in undefined_name %}{{ x }}{% else %}nothing{% endfor %}",
    "{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for x in l %}{% set outer = loop %}{% for y in [1] %}{{ outer.index }}{% endfor %}{% endfor %}",
    "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{% if loop.changed(x) %}[{{ x }}]{% endif %}{% endfor %}",
    "{% for m in people[::-1] %}{{ m.name }}{{ loop.index0 }} {% endfor %}",
    "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = i %}{{ x }} {% endfor %}{{ x }}",
    "{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% if no %}{% set y = 1 %}{% endif %}{{ y is defined }}",
    "{% set ns = namespace(total=0, seen=false) %}{% for i in l %}{% set ns.total = ns.total + i %}{% endfor %}{{ ns.total }} {{ ns.seen }}",
    "{% set ns = namespace() %}{% set ns.a = 'x' %}{{ ns.a }}{{ ns.b is undefined }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set (a, b), c = (1, 2), 3 %}{{ a }}{{ b }}{{ c }}",
    "{% set t = 1, 2 %}{{ t }}",
    "{% set block %}a {{ n }} b{% endset %}[{{ block }}]",
    "{% set block | upper | replace('A', 'x') %}a {{ s }} b{% endset %}[{{ block }}]",
    "{% set x = 1 %}{% set b %}{% set x = 2 %}{{ x }}{% endset %}{{ b }}{{ x }}",
    "{% macro m(a, b='B') %}<{{ a }}{{ b }}>{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}{{ m() }}",
    "{% macro m(a, b=a ~ '!') %}{{ a }}{{ b }}{% endmacro %}{{ m('x') }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(5) }}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}",
    "{% macro m() %}{% set x = 9 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{{ x }}",
    "{% macro m(x) -%}  [{{ x }}]  {%- endmacro %}{{ m('a') | upper }}{{ m('b')|trim ~ '!' }}",
    "{% macro dialog(title) %}<{{ title }}>{{ caller() }}</>{% endmacro %}{% call dialog('T') %}body {{ n }}{% endcall %}",
    "{% macro each(xs) %}{% for x in xs %}{{ caller(x) }};{% endfor %}{% endmacro %}{% call(v) each(l) %}{{ v * 2 }}{% endcall %}",
    "{% macro m() %}{{ loop is defined }}{% endmacro %}{% for x in [1] %}{{ m() }}{% endfor %}",
    "{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}",
    "{% filter upper %}abc {{ s }}{% endfilter %}",
    "{% filter replace('a', 'b') | upper %}banana{% endfilter %}",
    "{% generation %}a{{ n }}{% endgeneration %}",
    "{% for x in l %}{% generation %}{{ x }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}{% endfor %}",
    "{% print s, n %}",
    "{% raw %}{{ not }} {% parsed %}{% endraw %}!",
    "a\n  {%- raw %}  x {{ y }}  {% endraw -%}  \n b",
    "  {% raw %}\n  z\n  {% endraw %}\nend",
    "a {# comment {{ x }} #} b",
    "a\n  {# comment #}\nb",
    "a\n  {#- comment -#}\nb",
    "a\n  {#+ comment +#}\nb",
    "line\n    {% if yes %}\n    in\n    {% endif %}\nafter\n",
    "line\n    {%+ if yes %}\n    in\n    {%+ endif +%}\nafter\n",
    "line\n    {%- if yes -%}\n    in\n    {%- endif -%}\nafter\n\n",
    "line\n    {{ n }}\n    {{- n }}\n    {{ n -}}\n    x",
    "  {% set x = 1 %}  \n{{ x }}",
    "x {% set x = 1 %}\n  {{ x }}",
    "{% for x in l %}\n  - {{ x }}\n{% endfor %}\n",
    "{% for x in l -%}\n  - {{ x }}\n{%- endfor %}\n",
    "a\r\nb\rc\n{% if yes %}\r\nd\r\n{% endif %}\r\n",
    "trailing newline\n",
    "two trailing\n\n",
    "{{ n }}\n",
    "",
    "\n",
    "{",
    "{ {{ '{' }} }",
    "{{ '}}' }}{{ \"%}\" }}{% if '%}' == '%}' %}ok{% endif %}",
    "{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ {'a': {'b': {}}}}}",
    "{{- n -}}   {{- n -}}",
    "{%-if yes-%}  x  {%-endif-%}",
    "{{'a'if yes else'b'}}",
    "{% if yes: %}a{% else: %}b{% endif %}",
    "{% set x %}{% endset %}[{{ x }}]",
    "{% if x is defined and x %}{{ x }}{% else %}none{% endif %}",
    "{% if no %}{{ n|nofilter }}{% endif %}ok",
    "{{ 'x' if no else (n|string) }}",
    "{% if no %}{{ n is notest }}{% endif %}ok",
    "{{ s|nofilter if no else 'ok' }}",
    "\u00a0\n {% if yes %}\nx{% endif %}",
    "é {%- if yes %} ü {%- endif %}",
    "{% set messages = [{'role': 'user'}] + [{'role': 'system'}] %}{{ messages|map(attribute='role')|join(' ') }}",
    "{% set l2 = l + [9] %}{{ l2 }}{{ l }}",
    "{% for i in range(3) %}{{ i }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for item in nested %}{% if item is mapping %}M{% elif item is iterable and item is not string %}L{% endif %}{% endfor %}",
    "{%- for p in people -%}{{ p.name }}: {% for t in p.tags %}{{ t }}{% else %}-{% endfor %}; {% endfor -%}",
    "{% set x = none %}{% if x is none %}N{% endif %}{% if x is defined %}D{% endif %}{% if not x %}F{% endif %}",
    "{{ raise_exception is defined }}{{ strftime_now is defined }}{{ foo is defined }}",
    # Errors.
    "{{ undefined_name.attr }}",
    "{{ undefined_name['attr'] }}",
    "{{ undefined_name() }}",
    "{{ undefined_name + 1 }}",
    "{{ -undefined_name }}",
    "{{ undefined_name < 1 }}",
    "{{ d.missing.deeper }}",
    "{{ n() }}",
    "{{ s + n }}",
    "{{ s + nil }}",
    "{{ n + s }}",
    "{{ l + s }}",
    "{{ 1 / 0 }}",
    "{{ 1 // 0 }}",
    "{{ 1 % 0 }}",
    "{{ 1 in 'abc' }}",
    "{{ 1 in 5 }}",
    "{{ 1 < 'a' }}",
    "{{ nil < 1 }}",
    "{{ n|length }}",
    "{{ nil|length }}",
    "{% for x in n %}{% endfor %}",
    "{% for x in nil %}{% endfor %}",
    "{% for a, b in [1, 2] %}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% set a, b = 1 %}",
    "{% set d.x = 1 %}",
    "{{ raise_exception('no') }}",
    "{{ s|nofilter }}",
    "{{ s is notest }}",
    "{{ s.nomethod() }}",
    "{{ l.append(1) }}",
    "{{ d.update({}) }}",
    "{{ d.pop('a') }}",
    "{{ s.__class__ }}",
    "{{ s.__class__.__mro__ }}",
    "{{ ''['__class__'] }}",
    "{{ l.__len__() }}",
    "{{ range(10000000) }}",
    "{{ range(10**9)|list }}",
    "{{ range(0, 5, 0) }}",
    "{{ s.split('') }}",
    "{{ s.index('zzz') }}",
    "{{ l.index(99) }}",
    "{{ ','.join([1, 2]) }}",
    "{{ s.startswith(1) }}",
    "{{ undefined_name|tojson }}",
    "{{ [undefined_name]|tojson }}",
    "{{ range|tojson }}",
    "{{ '%d' % 'x' }}",
    "{{ '%s %s' % 'x' }}",
    "{{ '%s' % (1, 2) }}",
    "{{ 'x'.format(1)|nope }}",
    "{{ '{}'.format() }}",
    "{{ l|sort(attribute='x') }}",
    "{{ [1, 'a']|sort }}",
    "{{ n|items|list }}",
    "{{ s|items|list }}",
    "{{ {[1]: 2} }}",
    "{{ l['a':] }}",
    "{{ n[1:] }}",
    "{{ l[::0] }}",
    "{{ s|round }}",
    "{{ s|abs }}",
    "{{ words|sum }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m(a) %}{% endmacro %}{% call m(1) %}{% endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{{ n|map(attribute='x')|list }}",
    "{{ l|map('nofilter')|list }}",
    "{{ l|select('notest')|list }}",
    # Syntax errors.
    "{{ }}",
    "{{ 1 + }}",
    "{{ (1 }}",
    "{{ 1) }}",
    "{{ [1 }}",
    "{{ {'a' 1} }}",
    "{{ 'a }}",
    "{{ a b }}",
    "{{ 1 2 }}",
    "{{ a..b }}",
    "{{ a. }}",
    "{{ a[ }}",
    "{{ a[] }}",
    "{{ |upper }}",
    "{{ a| }}",
    "{{ a is }}",
    "{{ a is b is c }}",
    "{{ f(a=1, 2) }}",
    "{{ f(a=1, a=2) }}",
    "{{ a $ b }}",
    "{{ a ! b }}",
    "{{ a & b }}",
    "{{ 'x' if }}",
    "{{ a",
    "{% if a %}",
    "{% if %}{% endif %}",
    "{% endif %}",
    "{% else %}",
    "{% for x %}{% endfor %}",
    "{% for x in %}{% endfor %}",
    "{% for in l %}{% endfor %}",
    "{% for x in l %}{% endif %}",
    "{% for 1 in l %}{% endfor %}",
    "{% set %}",
    "{% set 1 = 2 %}",
    "{% set true = 2 %}",
    "{% set x = %}",
    "{% set x %}",
    "{% macro %}{% endmacro %}",
    "{% macro m %}{% endmacro %}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m(1) %}{% endmacro %}",
    "{% nothing %}",
    "{% %}",
    "{% if a",
    "{# never closed",
    "{% raw %} never closed",
    "{{ '\\x4' }}",
    "{{ '\\u12' }}",
    "{% break %}",
    "{% continue %}",
    "{% call 1 %}{% endcall %}",
]
