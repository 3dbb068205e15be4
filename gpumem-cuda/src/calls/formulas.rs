//! Formulas as CUDA C: those of functions of one number and of losses of elements, which the CPU backend compiles as Rust.

use gpumem_core::Loss;
use gpumem_core::program::functions::Function;
use std::sync::LazyLock;

/// The header `functions.cuh`: a struct for each function of one number.
pub(super) static FUNCTIONS: LazyLock<String> =
    LazyLock::new(|| Function::ALL.iter().copied().map(structure).collect());

/// The header `losses.cuh`: a struct for each loss of elements.
pub(super) static LOSSES: LazyLock<String> = LazyLock::new(|| Loss::ALL.iter().copied().filter_map(loss).collect());

/// Returns a function as a struct of its name, with its formulas as static functions `value` and `slope`.
fn structure(function: Function) -> String {
    let row = function.row();
    let arguments = row.arguments.iter().enumerate();
    let words: Vec<(&str, String)> =
        arguments.map(|(at, it)| (it.name, format!("const float {} = (float)arguments.at[{at}];", it.name))).collect();
    let [value, slope] = [("value", row.value), ("slope", row.slope)].map(|(name, closure)| {
        let (parameter, formula) = closure.trim_start_matches('|').split_once('|').unwrap_or_default();
        method(&format!("{name}(float {}, const Arguments &arguments)", parameter.trim()), formula, &words)
    });
    format!("struct {} {{\n{value}{slope}}};\n", function.name())
}

/// Returns a loss of elements as a struct of its name, with its formulas as static functions. `None` for other losses.
fn loss(loss: Loss) -> Option<String> {
    let [value, slope] = loss.formulas()?;
    let words = [
        ("d", "const float d = x - t;".into()),
        ("number", "constexpr float number = (float)NUMBER_OF_LOSS;".into()),
        ("log_target", "constexpr bool log_target = HAS_LOGARITHMS;".into()),
    ];
    let [value, slope] = [("value", value), ("slope", slope)]
        .map(|(name, formula)| method(&format!("{name}(float x, float t, float weight)"), formula, &words));
    Some(format!("struct {} {{\n{value}{slope}}};\n", loss.name()))
}

/// Returns a formula as a static function with this name and these parameters. It begins with the definitions of the words that the formula uses.
fn method(signature: &str, formula: &str, words: &[(&str, String)]) -> String {
    // The compiler may break the lines of a formula anywhere.
    let formula = formula.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_used = |word: &str| formula.split(|c: char| !is_of_word(c)).any(|it| it == word);
    let used = words.iter().filter(|(word, _)| is_used(word));
    let words: String = used.map(|(_, definition)| format!("{definition} ")).collect();
    format!("    static __device__ __forceinline__ float {signature} {{ {words}{} }}\n", statements(&formula))
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
    use gpumem_core::program::loss::Over;

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
    fn losses_are_structs() {
        assert_eq!(
            loss(Loss::SmoothL1).unwrap(),
            "struct SmoothL1 {
    static __device__ __forceinline__ float value(float x, float t, float weight) { \
             const float d = x - t; constexpr float number = (float)NUMBER_OF_LOSS; \
             return fabsf(d) < number ? 0.5f * d * d / number : fabsf(d) - 0.5f * number; }
    static __device__ __forceinline__ float slope(float x, float t, float weight) { \
             const float d = x - t; constexpr float number = (float)NUMBER_OF_LOSS; \
             return fabsf(d) < number ? d / number : sign_of(d); }
};
"
        );
        for &it in Loss::ALL {
            assert_eq!(loss(it).is_some(), it.row().over == Over::Elements, "{it:?}");
        }
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
