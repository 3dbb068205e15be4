//! One test for each message about several training steps.

use super::assert_mistakes;

/// A network of two linear maps with these constants.
fn net(constants: &str) -> String {
    format!(
        "pub struct Net; {constants}
        fn forward(x: Features<4>) -> Logits<2> {{ [Linear(3, name = \"body\"), Tanh, tap(inner), Linear(2, name = \"head\")] }}"
    )
}

/// The same with `inner` measured, so that its tap is read.
fn two(first: &str, second: &str) -> String {
    net(&format!(
        "const ONE: Train = Train {{ batch: 4, {first} }};
        const TWO: Train = Train {{ batch: 4, loss: Mse(from = inner), {second} }};"
    ))
}

/// A mistake that is found where the step is lowered.
fn assert_said(text: &str, message: &str) {
    let expanded = crate::network(text.parse().unwrap()).to_string();
    assert!(expanded.contains(message), "{expanded}");
}

#[test]
fn steps_are_constants_of_any_name() {
    assert_mistakes(&two("", ""), &[]);
    assert_mistakes(&two("trains: \"head*\"", "trains: \"body*\""), &[]);
    let beside = "const TRAIN: Train = Train { batch: 4 };
                  const r#MATCH: Train = Train { batch: 2, loss: Mse(from = inner) };";
    assert_mistakes(&net(beside), &[]);
}

#[test]
fn mistakes_in_what_a_step_trains() {
    let trains = |text: &str| two(&format!("trains: {text}"), "trains: \"body*\"");
    assert_mistakes(
        &trains("\"haed*\""),
        &[(
            "\"haed*\"",
            "no parameter that is trained is called `haed*`; their names are those from `body.weight` to `head.bias`",
        )],
    );
    assert_mistakes(
        &trains("\"head.wieght, head.bias\""),
        &[(
            "\"head.wieght, head.bias\"",
            "no parameter that is trained is called `head.wieght`; did you mean `head.weight`?",
        )],
    );
    let message = "`trains` changes the program, so it must be literal; write the names of parameters, as \
                   `trains: \"critic*\"`";
    assert_mistakes(&trains("HEAD"), &[("HEAD", message)]);
    let message =
        "`head.bias` is trained by no step; name it in `trains` of `TWO`, or write `freeze(..)` around its layer";
    assert_mistakes(&two("trains: \"head.weight\"", "trains: \"body*\""), &[("\"body*\"", message)]);
    let alone =
        |trains: &str| net(&format!("const TRAIN: Train = Train {{ batch: 4, loss: Mse(from = inner), {trains} }};"));
    assert_mistakes(&alone("trains: \"*\""), &[("\"*\"", "the only step trains everything; remove `trains`")]);
    let message =
        "`head.weight` is trained by no step; name it in `trains` of `TRAIN`, or write `freeze(..)` around its layer";
    assert_mistakes(&alone("trains: \"body*\""), &[("\"body*\"", message)]);
    let message = "the loss of `TWO` depends on nothing that it trains; name in `trains` what lies before the loss";
    assert_said(&two("", "trains: \"head*\""), message);
}

#[test]
fn what_steps_have_in_common() {
    let message =
        "`TWO` has precision F16 and `ONE` has F32, but both train one set of weights; write one precision in both";
    assert_mistakes(&two("", "precision: F16"), &[("F16", message)]);
    let message = "`TWO` has precision F32 and `ONE` has Mixed(Bf16), but both train one set of weights; write one precision in both";
    assert_mistakes(&two("precision: Mixed(Bf16)", ""), &[("TWO", message)]);
    let message =
        "the states of all steps lie in host memory, or those of none; write the same `offload` in `ONE` and `TWO`";
    let adam = "optimizer: Adam";
    let offloads = two(adam, &format!("{adam}, offload: OptimizerState"));
    assert_mistakes(&offloads, &[("OptimizerState", message)]);
    let message = "`batch: Largest` is for a network with `TRAIN` alone; write the batch of `TWO` as a number, which `max_batch!` finds";
    let largest =
        "const ONE: Train = Train { batch: 4 }; const TWO: Train = Train { batch: Largest, loss: Mse(from = inner) };";
    assert_mistakes(&net(largest), &[("Largest", message)]);
    let message = "`ema` averages the parameters of a network with `TRAIN` alone; average those of one step in another network, \
                   which takes them with `copy_from`";
    assert_mistakes(&two("", "ema: 0.99"), &[("0.99", message)]);
    let generic = "pub struct Net<const B: usize>;
        const ONE: Train = Train { batch: B };
        const TWO: Train = Train { batch: 4 };
        fn forward(x: Features<4>) -> Logits<2> { [Linear(2)] }";
    assert_mistakes(generic, &[("4", "a network over `B` has `batch: B` in each of its steps")]);
}

#[test]
fn names_of_steps() {
    let named = |one: &str, other: &str| {
        net(&format!(
            "const {one}: Train = Train {{ batch: 4 }}; const {other}: Train = Train {{ batch: 4, loss: Mse(from = inner) }};"
        ))
    };
    let message = "the step's function would be called `on`, which is taken; rename `ON`";
    assert_mistakes(&named("ONE", "ON"), &[("ON", message)]);
    let message = "the step's function would be called `self`, which is taken; rename `SELF`";
    assert_mistakes(&named("ONE", "SELF"), &[("SELF", message)]);
    let message = "the functions of `ONE` and `one` would both be called `one`; rename one of the two";
    assert_mistakes(&named("ONE", "one"), &[("one", message)]);
    assert_mistakes(&named("ONE", "ONE"), &[("ONE", "`ONE` is defined twice; remove one")]);
    let message = "`ONE` has no field `bach`; did you mean `batch`?";
    assert_mistakes(&net("const ONE: Train = Train { bach: 4, loss: Mse(from = inner) };"), &[("bach", message)]);
    let message = "`ONE` has no `batch`; write how many samples a step has, as `batch: 32`";
    assert_mistakes(&net("const ONE: Train = Train { loss: Mse(from = inner) };"), &[("ONE", message)]);
}

/// `forward` and `train_step` of the network itself take the same inputs.
#[test]
fn train_beside_others_has_the_inputs_of_forward() {
    let text = "pub struct Net;
        const TRAIN: Train = Train { batch: 4, loss: Mse(from = sum) };
        const REST: Train = Train { batch: 4 };
        fn forward(x: Features<4>, y: Features<4>) -> Logits<2> {
            [Add([], from(y)), tap(sum_of), Linear(2), tap(sum), from(x), Linear(2, name = \"own\")]
        }"
    .replace("tap(sum_of), ", "");
    let message = "the loss of `TRAIN` depends on other inputs than the outputs of `Net` do; give the constant another name, as `const STEP`, \
                   and make its steps with `Net::step(&mut net)`, which takes the inputs of its loss";
    assert_said(&text, message);
}
