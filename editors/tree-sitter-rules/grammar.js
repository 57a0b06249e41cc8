/**
 * The grammar of .rules files for tree-sitter: the productions of grammar/syntax/rules.lark, level by level, so that both
 * accept the same texts. Binary operators of all levels are `binary_expression` nodes.
 */

const KINDS = ["complex", "elementwise", "injective", "opaque", "reduction"];

// Reserved words that may name an attribute, as in `direction: "forward"`.
const LABELS = [
  ...["allow", "and", "broadcasts", "class", "commutative", "def", "direction", "discontinuous", "else", "equals"],
  ...["fires", "fold", "for", "fuse", "given", "gives", "if", "impure", "in", "is", "joins", "kind", "let", "not", "op"],
  ...["or", "order", "phase", "refuses", "rule", "ruleset", "schedule", "test", "use", "where"],
];

const some = (rule) => seq(rule, repeat(seq(",", rule)));
const listed = (rule) => optional(some(rule)); // a, b
const trailed = (rule) => optional(seq(some(rule), optional(","))); // a, b,
const binary = ($, left, operators, right) =>
  seq(field("left", left), field("operator", operators), field("right", right));

module.exports = grammar({
  name: "rules",
  word: ($) => $.name,
  extras: ($) => [/[ \t\r\n]/, $.comment],
  supertypes: ($) => [$._item],

  rules: {
    source_file: ($) => seq(optional($.docstring), repeat($._item)),
    _item: ($) => choice($.rule, $.fuse, $.op, $.def, $.ruleset, $.schedule, $.use, $.domain),

    // --- items

    rule: ($) =>
      seq(
        "rule",
        field("name", $.name),
        optional($.docstring),
        field("left", $._side),
        field("arrow", $.arrow),
        field("right", $._side),
        repeat($._clause),
      ),
    fuse: ($) =>
      seq(
        "fuse",
        field("name", $.name),
        optional($.docstring),
        field("left", $._expression),
        field("arrow", $.arrow),
        field("right", $._expression),
        repeat($._clause),
      ),
    op: ($) =>
      seq(
        "op",
        field("name", $._operator_name),
        optional($.parameters),
        optional($.results),
        optional($.docstring),
        optional(seq("=", field("definition", $._expression))),
        repeat($._clause),
      ),
    def: ($) =>
      seq(
        "def",
        field("name", $.name),
        "(",
        listed(field("parameter", $._word)),
        ")",
        optional($.docstring),
        "=",
        field("body", $._expression),
      ),
    use: ($) => seq("use", field("path", $.string), optional(seq("(", some($._operator_name), ")"))),
    domain: ($) =>
      seq("use", field("name", $._operator_name), "(", $.number, optional(seq("..", optional($.number))), ")"),
    ruleset: ($) =>
      seq("ruleset", field("name", $.name), optional($.docstring), repeat(choice($.limit, $.joins_clause))),
    limit: ($) => seq(field("name", $.name), $.number),
    schedule: ($) => seq("schedule", field("name", $.name), optional($.docstring), "=", $._steps),
    _steps: ($) => seq($._step, repeat(seq(";", $._step))),
    _step: ($) => choice($.run, $.saturate, $.repeated),
    run: ($) => field("ruleset", $.name),
    saturate: ($) => seq($.name, "(", $._steps, ")"),
    repeated: ($) => seq($.name, $.number, "(", $._steps, ")"),

    _side: ($) => choice($._expression, $.roots),
    roots: ($) => seq("{", some($.binding), optional(","), "}"),
    binding: ($) => seq($.target, "=", field("value", $._expression)),
    target: ($) => seq(field("name", $.name), optional(seq("[", $._index, "]"))),

    _operator_name: ($) => choice($.name, $.qualified_name),
    parameters: ($) => seq("(", listed($.parameter), ")"),
    parameter: ($) =>
      choice(
        field("name", $._word),
        seq(field("name", $._word), "=", field("default", $._expression)),
        seq(field("name", $._word), "[", "*", "]", optional(seq(":", $.element, optional($.shape)))),
        seq(field("name", $._label), ":", $.element, optional($.shape), optional(seq("=", $._expression))),
        seq(field("name", $._label), ":", field("value", $._constant)),
      ),
    results: ($) => seq("->", choice($.type, seq("(", some($.type), ")"))),
    _constant: ($) =>
      choice(
        $.number,
        $.string,
        alias($._negative_constant, $.unary_expression),
        alias($._constant_list, $.list),
      ),
    _negative_constant: ($) => seq("-", $._constant_item),
    _constant_list: ($) => seq("[", trailed($._constant_item), "]"),
    _constant_item: ($) => choice($._constant, $.name),

    // --- clauses

    _clause: ($) =>
      choice(
        $.given_clause,
        $.where_clause,
        $.let_clause,
        $.class_clause,
        $.direction_clause,
        $.joins_clause,
        $.order_clause,
        $.test_clause,
        $.allow_clause,
        $.kind_clause,
        $.flag,
      ),
    given_clause: ($) => seq("given", some($.typed)),
    where_clause: ($) => seq("where", some($._expression)),
    let_clause: ($) => seq("let", some($.binding)),
    class_clause: ($) => seq("class", repeat1($.name)),
    direction_clause: ($) => seq("direction", $.name),
    joins_clause: ($) => seq("joins", $.name),
    order_clause: ($) => seq("order", $._expression),
    test_clause: ($) =>
      seq(
        "test",
        choice(
          seq(
            field("verdict", $.verdict),
            choice(
              seq(optional($.operands), optional(seq("gives", $._expression))),
              seq($.name, $.string, optional(seq($.name, $.number))),
              seq("in", $._expression, optional(seq("for", $.operands))),
            ),
          ),
          seq("equals", $._expression, optional(seq("for", $.operands))),
        ),
      ),
    verdict: () => choice("fires", "refuses"),
    allow_clause: ($) => seq("allow", $.name, $.string),
    kind_clause: ($) => seq("kind", $.kind),
    flag: () => choice("commutative", "impure", "discontinuous"),
    typed: ($) => seq(some($.target), ":", $.type),
    operands: ($) => some($.operand),
    operand: ($) => seq($.target, optional(seq(":", $.type)), optional(seq("=", field("value", $._expression)))),

    // --- types

    type: ($) =>
      choice(
        seq(optional("const"), $.element, optional($.shape), optional($._broadcasts)),
        seq(optional("const"), $.shape, optional($._broadcasts)),
        seq("const", optional($._broadcasts)),
        $._broadcasts,
      ),
    _broadcasts: ($) => seq("broadcasts", alias($.name, $.broadcast_target), $._expression), // `to`
    element: ($) => $.name,
    shape: ($) => seq("[", listed($._dim), "]"),
    _dim: ($) => choice($._expression, $.any_dim, alias($._shape_rest, $.rest)),
    any_dim: () => "_",
    _shape_rest: ($) => seq("..", optional($._word)),

    // --- expressions and patterns, loosest first

    _expression: ($) => choice($._conjunction, alias($._or, $.binary_expression)),
    _or: ($) => binary($, $._expression, "or", $._conjunction),
    _conjunction: ($) => choice($._negation, alias($._and, $.binary_expression)),
    _and: ($) => binary($, $._conjunction, "and", $._negation),
    _negation: ($) => choice($._comparison, alias($._not, $.unary_expression)),
    _not: ($) => seq("not", $._negation),
    _comparison: ($) => choice($._range, $.comparison),
    comparison: ($) => binary($, $._range, $._comparator, $._range),
    _comparator: ($) => choice($.comparator, "in", seq("not", "in"), "is", seq("is", "not")),
    _range: ($) => choice($._sum, $.range),
    range: ($) => seq($._sum, "..", $._sum),
    _sum: ($) => choice($._term, alias($._add, $.binary_expression)),
    _add: ($) => binary($, $._sum, choice("+", "-"), $._term),
    _term: ($) => choice($._unary, alias($._multiply, $.binary_expression)),
    _multiply: ($) => binary($, $._term, choice("*", "/", "%", "@"), $._unary),
    _unary: ($) => choice($._power, alias($._negative, $.unary_expression)),
    _negative: ($) => seq("-", $._unary),
    _power: ($) => choice($._postfix, alias($._raise, $.binary_expression)),
    _raise: ($) => binary($, $._postfix, "**", $._unary),
    _postfix: ($) => choice($._atom, $.subscript),
    subscript: ($) => seq(field("base", $._postfix), "[", $._index, "]"),
    _index: ($) => choice($._expression, $.every),
    every: () => "*",

    _atom: ($) =>
      choice(
        $._word,
        $.number,
        $.string,
        $.call,
        $.class_head,
        $.parenthesized_expression,
        $.optional_operand,
        $.alternatives,
        $.conditional,
        $.list,
        $.comprehension,
      ),
    call: ($) => seq(field("function", choice($._word, $.qualified_name)), $.arguments),
    class_head: ($) => seq($.kind, field("name", $.name), $.arguments),
    parenthesized_expression: ($) => seq("(", $._expression, ")"),
    optional_operand: ($) => seq("(", field("name", $._word), "=", field("default", $._expression), ")"),
    alternatives: ($) => seq("(", $._expression, repeat1(seq("|", $._expression)), ")"),
    conditional: ($) => seq("(", $._expression, "if", $._expression, "else", $._expression, ")"),
    list: ($) => seq("[", trailed(choice($._expression, $.each)), "]"),
    comprehension: ($) =>
      seq(
        "[",
        $._expression,
        "for",
        field("variable", $._word),
        "in",
        $._expression,
        optional(seq("if", $._expression)),
        "]",
      ),

    arguments: ($) => seq("(", trailed(choice($._expression, $.each, $.default, $.attribute, $.rest)), ")"),
    each: ($) => seq($._expression, "..."),
    default: ($) => seq(field("name", $._word), "=", field("value", $._expression)),
    attribute: ($) =>
      seq(field("name", $._label), ":", field("value", $._expression), optional(seq("=", $._expression))),
    rest: ($) => seq("..", optional($._word)),

    // --- words

    _word: ($) => choice($.name, alias("const", $.name)),
    _label: ($) => choice($._word, ...[...LABELS, ...KINDS].map((word) => alias(word, $.name))),
    kind: () => choice(...KINDS),

    arrow: () => choice("=>", "<=>"),
    comparator: () => choice("==", "!=", "<=", ">=", "<", ">"),
    name: () => /[A-Za-z][A-Za-z0-9_]*/,
    qualified_name: () => /[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+/,
    number: () => /[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?/,
    string: () => /"[^"\n]*"/,
    docstring: () => /"""([^"]|"[^"]|""[^"])*"""/,
    comment: () => /#[^\n]*/,
  },
});
