//! Integer expressions over symbols, as SymPy's `srepr` writes them: `Mul(Integer(4), Symbol('s13', integer=True))`.

use std::collections::BTreeMap;

/// The longest expression that is read, in bytes.
const LONGEST: usize = 16 << 10;
/// The deepest nesting that is read.
const DEEPEST: u32 = 64;

/// The values of symbols, such as `s13`.
pub(super) type Symbols = BTreeMap<String, i64>;

/// Returns the value of an expression. `None` if it is none that is known, names an unknown symbol, or overflows.
pub(super) fn evaluate(text: &str, symbols: &Symbols) -> Option<i64> {
    if text.len() > LONGEST {
        return None;
    }
    let mut reader = Reader { rest: text.trim() };
    let value = reader.expression(symbols, DEEPEST)?;
    reader.rest.is_empty().then_some(value)
}

/// Returns the name of the symbol if the expression is nothing else.
pub(super) fn symbol(text: &str) -> Option<&str> {
    let name = text.trim().strip_prefix("Symbol('")?;
    let (name, rest) = name.split_once('\'')?;
    (rest.matches('(').count() == 0 && rest.ends_with(')')).then_some(name)
}

/// Returns `(k, s)` of an expression `k * s`, with a positive number and a symbol. `None` if it is none.
pub(super) fn multiple(text: &str) -> Option<(i64, &str)> {
    if let Some(name) = symbol(text) {
        return Some((1, name));
    }
    let (factor, rest) = text.trim().strip_prefix("Mul(Integer(")?.split_once("), ")?;
    let factor = factor.parse().ok().filter(|factor| *factor > 0)?;
    Some((factor, symbol(rest.strip_suffix(')')?)?))
}

struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    /// Skips `token` and the spaces after it. False if something else comes.
    fn skip(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> &'t str {
        let end = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    fn quoted(&mut self) -> Option<&'t str> {
        let rest = self.rest.strip_prefix('\'')?;
        let (text, rest) = rest.split_once('\'')?;
        self.rest = rest.trim_start();
        Some(text)
    }

    fn integer(&mut self) -> Option<i64> {
        let is_negative = self.skip("-");
        let value: i64 = self.word().parse().ok()?;
        Some(if is_negative { -value } else { value })
    }

    fn expression(&mut self, symbols: &Symbols, depth: u32) -> Option<i64> {
        let depth = depth.checked_sub(1)?;
        if self.rest.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
            return self.integer();
        }
        let name = self.word().rsplit('.').next()?;
        if !self.skip("(") {
            return None;
        }
        let value = match name {
            "Symbol" => *symbols.get(self.quoted()?)?,
            "Integer" => self.integer()?,
            _ => {
                let mut values = vec![self.expression(symbols, depth)?];
                while self.skip(",") && !self.rest.starts_with(')') && !self.is_option() {
                    values.push(self.expression(symbols, depth)?);
                }
                apply(name, &values)?
            }
        };
        // Options, such as `integer=True`, do not change the value.
        let (options, rest) = self.rest.split_once(')')?;
        self.rest = rest.trim_start();
        (!options.contains('(')).then_some(value)
    }

    /// True if an option comes, such as `evaluate=False`.
    fn is_option(&self) -> bool {
        let end = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(self.rest.len());
        self.rest[end..].starts_with('=')
    }
}

/// Applies a function of SymPy or of PyTorch's `torch.utils._sympy.functions`.
fn apply(name: &str, values: &[i64]) -> Option<i64> {
    let fold =
        |start: i64, f: fn(i64, i64) -> Option<i64>| values.iter().try_fold(start, |so_far, &value| f(so_far, value));
    match (name, values) {
        ("Add", _) => fold(0, i64::checked_add),
        ("Mul", _) => fold(1, i64::checked_mul),
        ("Max", _) => values.iter().copied().max(),
        ("Min", _) => values.iter().copied().min(),
        ("Pow" | "PowByNatural", &[base, exponent]) => base.checked_pow(u32::try_from(exponent).ok()?),
        ("FloorDiv", &[a, b]) => (b != 0).then(|| a.checked_div_euclid(b))?.map(|quotient| floored(a, b, quotient)),
        ("CeilDiv", &[a, b]) => {
            let negated = a.checked_neg()?;
            (b != 0).then(|| negated.checked_div_euclid(b))?.map(|quotient| -floored(negated, b, quotient))
        }
        ("CleanDiv", &[a, b]) => (b != 0 && a.checked_rem(b)? == 0).then(|| a / b),
        ("Mod" | "PythonMod", &[a, b]) => {
            let remainder = (b != 0).then(|| a.checked_rem_euclid(b))??;
            Some(if b < 0 && remainder != 0 { remainder.checked_add(b)? } else { remainder })
        }
        ("IntTrueDiv", &[a, b]) => (b != 0 && a.checked_rem(b)? == 0).then(|| a / b),
        _ => None,
    }
}

/// Turns a Euclidean quotient into that of Python, which rounds down.
fn floored(a: i64, b: i64, quotient: i64) -> i64 {
    if b < 0 && a.rem_euclid(b) != 0 { quotient - 1 } else { quotient }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<i64> {
        evaluate(text, &[("s13".to_string(), 6), ("s44".to_string(), 5)].into())
    }

    #[test]
    fn expressions_of_pytorch() {
        let s13 = "Symbol('s13', positive=True, integer=True)";
        assert_eq!(value(s13), Some(6));
        assert_eq!(value(&format!("Mul(Integer(4), {s13})")), Some(24));
        assert_eq!(value(&format!("Add(Mul(Integer(2), {s13}, Symbol('s44')), Integer(-1))")), Some(59));
        assert_eq!(value(&format!("FloorDiv(Add({s13}, Integer(-9)), Integer(2))")), Some(-2));
        assert_eq!(value(&format!("Mod({s13}, Integer(4))")), Some(2));
        assert_eq!(value(&format!("Max(Integer(1), {s13}, evaluate=False)")), Some(6));
        assert_eq!(value("Pow(Integer(3), Integer(2))"), Some(9));
        assert_eq!(symbol(s13), Some("s13"));
        assert_eq!(multiple(&format!("Mul(Integer(2), {s13})")), Some((2, "s13")));
        assert_eq!(multiple(&format!("Mul({s13}, {s13})")), None);
        assert_eq!(symbol("Mul(Integer(2), Symbol('s13'))"), None);
    }

    /// Quotients and remainders are Python's: `-7 // 2 == -4`, `7 // -2 == -4`, `-7 % -2 == -1`.
    #[test]
    fn quotients_round_down() {
        let of = |name: &str, a: i64, b: i64| value(&format!("{name}(Integer({a}), Integer({b}))"));
        assert_eq!(
            [of("FloorDiv", -7, 2), of("FloorDiv", 7, -2), of("FloorDiv", -7, -2)],
            [Some(-4), Some(-4), Some(3)]
        );
        assert_eq!([of("Mod", -7, 2), of("Mod", 7, -2), of("Mod", -7, -2)], [Some(1), Some(-1), Some(-1)]);
        assert_eq!([of("CeilDiv", 7, 2), of("CeilDiv", -7, 2)], [Some(4), Some(-3)]);
        assert_eq!([of("FloorDiv", 1, 0), of("Mod", 1, 0), of("CleanDiv", 7, 2)], [None; 3]);
    }

    #[test]
    fn other_texts_have_no_value() {
        let deep = format!("{}Integer(1){}", "Add(".repeat(1000), ")".repeat(1000));
        let long = format!("Add({}Integer(1))", "Integer(1), ".repeat(10_000));
        let texts = [
            "",
            "s13",
            "Symbol('s99')",
            "Integer(1",
            "Integer(1))",
            "Sin(Integer(1))",
            "Mul()",
            "Symbol(",
            "Integer(99999999999999999999)",
        ];
        for text in texts.into_iter().chain([&deep[..], &long[..]]) {
            assert_eq!(value(text), None, "{text:.60}");
        }
        assert_eq!(value("Mul(Integer(9223372036854775807), Integer(2))"), None);
        assert_eq!(value("FloorDiv(Integer(-9223372036854775808), Integer(-1))"), None);
    }
}
