//! Every message of the macro and every refusal, as the compiler shows it.

#[test]
fn messages() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/fail/*.rs");
}
