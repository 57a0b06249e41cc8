; Highlights: later patterns win. `helix/highlights.scm` is this file with the capture names of Helix.

(comment) @comment
(docstring) @string.documentation
(string) @string
(number) @number
(name) @variable
(any_dim) @variable.builtin

["rule" "fuse" "op" "def" "ruleset" "schedule"] @keyword.type
"use" @keyword.import
["given" "where" "let" "class" "direction" "joins" "order" "test" "equals" "gives" "allow" "kind"] @keyword
[(verdict) (flag)] @keyword
(kind) @keyword.modifier
["and" "or" "not" "in" "is" "for" "if" "else" "broadcasts"] @keyword.operator
"const" @keyword.modifier

[(arrow) (comparator) "->" "=" "+" "-" "*" "/" "%" "@" "**" "|" ".." "..."] @operator
(every) @operator
["(" ")" "[" "]" "{" "}"] @punctuation.bracket
["," ":" ";"] @punctuation.delimiter

; items
(rule name: (name) @function)
(fuse name: (name) @function)
(def name: (name) @function)
(op name: [(name) (qualified_name)] @constructor)
(ruleset name: (name) @module)
(schedule name: (name) @module)
(run ruleset: (name) @module)
(joins_clause (name) @module)
(domain name: [(name) (qualified_name)] @module)
(use [(name) (qualified_name)] @module)
(saturate (name) @function.builtin)
(repeated (name) @function.builtin)
(limit name: (name) @property)
(class_clause (name) @constant.builtin)
(direction_clause (name) @constant.builtin)
(allow_clause (name) @constant.builtin)
(broadcast_target) @keyword.operator

; calls
(call function: (name) @function.call)
((call function: (name) @constructor) (#match? @constructor "^[A-Z]"))
(call function: (qualified_name) @constructor)
(attribute name: (name) @property)
(parameter name: (name) @variable.parameter)
(def parameter: (name) @variable.parameter)

; words with a fixed meaning
((name) @constant.builtin (#any-of? @constant.builtin "true" "false" "none" "inf" "nan" "pi"))
(element (name) @type)
((name) @type.builtin
  (#any-of? @type.builtin
    "f64" "f32" "f16" "bf16" "i64" "i32" "i16" "i8" "i4" "i2" "u64" "u32" "u16" "u8" "u4" "u2" "bool" "string"
    "c64" "c128" "f8e4m3fn" "f8e4m3fnuz" "f8e5m2" "f8e5m2fnuz" "f8e8m0" "f4e2m1" "float" "integer" "number" "scalar"))
