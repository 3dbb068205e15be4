//! Formulas as CUDA C: those of functions of one number, which the CPU backend compiles as Rust.

use gpumem_core::program::functions::Function;
use std::sync::LazyLock;

/// The header `functions.cuh`: a struct for each function of one number.
pub(super) static FUNCTIONS: LazyLock<String> =
    LazyLock::new(|| Function::ALL.iter().copied().map(structure).collect());

/// Returns a function as a struct of its name, with its formulas as static functions `value` and `slope`.
fn structure(function: Function) -> String {
    let row = function.row();
    let method = |name: &str, closure: &str| {
        // The compiler may break the lines of a formula anywhere.
        let closure = closure.split_whitespace().collect::<Vec<_>>().join(" ");
        let (parameter, formula) = closure.trim_start_matches('|').split_once('|').unwrap_or_default();
        let is_used = |name: &str| formula.split(|c: char| !is_of_word(c)).any(|word| word == name);
        let arguments = row.arguments.iter().enumerate().filter(|(_, argument)| is_used(argument.name));
        let arguments = arguments.map(|(at, it)| format!("const float {} = (float)arguments.at[{at}]; ", it.name));
        let body = arguments.collect::<String>() + &statements(formula);
        format!(
            "    static __device__ __forceinline__ float {name}(float {}, const Arguments &arguments) {{ {body} }}\n",
            parameter.trim()
        )
    };
    let [value, slope] = [method("value", row.value), method("slope", row.slope)];
    format!("struct {} {{\n{value}{slope}}};\n", function.name())
}

/// Returns a formula as the body of a C++ function.
///
/// `{ let a = abs(x); if a < 1.0 { 0.0 } else { a } }` is `const float a = fabsf(x); return a < 1.0f ? 0.0f : a;`.
fn statements(formula: &str) -> String {
    let block = braces(formula.trim()).map_or(formula, |(inside, _)| inside).trim();
    match block.strip_prefix("let ").and_then(|rest| rest.split_once(';')) {
        Some((variable, rest)) => format!("const float {}; {}", expression(variable), statements(rest)),
        None => format!("return {};", choice(block)),
    }
}

/// Returns an expression, which may be an `if`, as C++.
fn choice(text: &str) -> String {
    let text = text.trim();
    let split = text.strip_prefix("if ").and_then(|rest| Some(rest.split_at(rest.find('{')?)));
    let Some((condition, (then, rest))) = split.and_then(|(condition, rest)| Some((condition, braces(rest)?))) else {
        return expression(text);
    };
    let rest = rest.trim_start().trim_start_matches("else").trim_start();
    let otherwise = braces(rest).map_or(rest, |(inside, _)| inside);
    format!("{} ? {} : {}", expression(condition), choice(then), choice(otherwise))
}

/// Splits a text that begins with a brace into what is between this brace and its partner, and what comes after.
fn braces(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('{')?;
    let mut depth = 1;
    let end = text.find(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0
    })?;
    Some((&text[..end], &text[end + 1..]))
}

/// Returns an expression without blocks as C++: `1.0 / exp(x)` is `1.0f / expf(x)`.
fn expression(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text.trim());
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_of_word(c) != is_of_word(first)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if first.is_ascii_digit() {
            out += &format!("{word}f");
        } else {
            out += if after.starts_with('(') { called(word) } else { word };
        }
        rest = after;
    }
    out
}

/// True for a letter of a name or of a number.
fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '.'
}

/// Returns the name in C++ of a function that formulas call. Those that C++ lacks are in `formula.cuh`.
pub(crate) fn called(name: &str) -> &str {
    match name {
        "abs" => "fabsf",
        "cos" => "cosf",
        "erf" => "erff",
        "exp" | "fast_exp" => "expf",
        "expm1" => "expm1f",
        "floor" => "floorf",
        "log" => "logf",
        "log1p" => "log1pf",
        "max" => "larger",
        "min" => "smaller",
        "pow" => "powf",
        "round" => "rintf",
        "sign" => "sign_of",
        "sin" => "sinf",
        "sqrt" => "sqrtf",
        "tanh" => "tanhf",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_bodies_of_functions() {
        let formula = "{ let a = 2.5 * pow(x, -y); if a < 1.0 && x >= y { fast_exp(a) } else if x == 0.5 { nan_or(y, 0.0) } else { a } }";
        assert_eq!(
            statements(formula),
            "const float a = 2.5f * powf(x, -y); return a < 1.0f && x >= y ? expf(a) : x == 0.5f ? nan_or(y, 0.0f) : a;"
        );
        assert_eq!(statements(" - max(x, 1.0)"), "return - larger(x, 1.0f);");
    }

    #[test]
    fn functions_are_structs() {
        assert_eq!(
            structure(Function::LeakyRelu),
            "struct LeakyRelu {
    static __device__ __forceinline__ float value(float x, const Arguments &arguments) { \
             const float negative_slope = (float)arguments.at[0]; return x > 0.0f ? x : negative_slope * x; }
    static __device__ __forceinline__ float slope(float y, const Arguments &arguments) { \
             const float negative_slope = (float)arguments.at[0]; return y > 0.0f ? 1.0f : nan_or(y, negative_slope); }
};
"
        );
    }
}
