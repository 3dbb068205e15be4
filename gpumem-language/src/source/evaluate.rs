//! Evaluates numbers of settings that are more than a literal, as far as a text alone says what they are.

use crate::settings::values::{plain, size};
use crate::syntax::Constant;
use syn::{BinOp, Expr, ExprLit, Lit};

/// The most constants of which each names the next.
const LONGEST: usize = 32;

/// Evaluates whole numbers with `+ - * / % << >>`, `mib(..)`, `gib(..)` and constants of the network. `None` for other expressions.
pub(super) fn number(value: &Expr, constants: &[Constant]) -> Option<u64> {
    evaluate(value, constants, 0)
}

fn evaluate(value: &Expr, constants: &[Constant], depth: usize) -> Option<u64> {
    if depth > LONGEST {
        return None;
    }
    match plain(value) {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse().ok(),
        Expr::Cast(cast) => evaluate(&cast.expr, constants, depth + 1),
        Expr::Binary(binary) => {
            let [left, right] = [&binary.left, &binary.right].map(|side| evaluate(side, constants, depth + 1));
            let (left, right) = (left?, right?);
            match binary.op {
                BinOp::Add(_) => left.checked_add(right),
                BinOp::Sub(_) => left.checked_sub(right),
                BinOp::Mul(_) => left.checked_mul(right),
                BinOp::Div(_) => left.checked_div(right),
                BinOp::Rem(_) => left.checked_rem(right),
                BinOp::Shl(_) => left.checked_mul(1u64.checked_shl(u32::try_from(right).ok()?)?),
                BinOp::Shr(_) => left.checked_shr(u32::try_from(right).ok()?),
                _ => None,
            }
        }
        Expr::Path(path) => {
            let name = path.path.get_ident()?;
            let constant = constants.iter().find(|constant| constant.name == *name)?;
            evaluate(&syn::parse2(constant.tokens.clone()).ok()?, constants, depth + 1)
        }
        call @ Expr::Call(_) => size(call),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_rust() {
        let mut errors = crate::errors::Errors::default();
        let text =
            "pub struct Net; const A: usize = 3; const B: u64 = A as u64 * 4; const C: usize = D; const D: usize = C;
            fn forward(x: Features<8>) -> Features<8> { [Linear(8)] }";
        let source = crate::parse::source(text.parse().unwrap(), &[], &mut errors).unwrap();
        let number = |text: &str| number(&syn::parse_str(text).unwrap(), &source.module.constants);
        for (text, expected) in [
            ("7_u64", 7),
            ("1 << 20", 1 << 20),
            ("(3 + 4) * 2 - 1", 13),
            ("17 / 5 + 17 % 5", 5),
            ("256 >> 4", 16),
            ("2 * B + A", 27),
            ("mib(1.5)", 3 << 19),
        ] {
            assert_eq!(number(text), Some(expected), "{text}");
        }
        for text in
            ["1 - 2", "1 / 0", "1 % 0", "1 << 64", "1 << 32 << 32", "C", "E", "size_of::<u8>()", "1.5", "-1", "true"]
        {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
