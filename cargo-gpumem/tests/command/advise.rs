//! `advise`: each change is one that the compiler would plan in the same way.

use super::{FIXTURE, alone, failure, fits, printed, write};
use serde_json::Value;

/// A network whose loss, activations, states and precision all leave something to save.
fn net(train: &str) -> String {
    format!(
        "use gpumem::prelude::*;\n\nnetwork! {{\n    pub struct Net;\n\n    const TRAIN: Train = Train {{ batch: 32, {train}, \
         cards: [RTX_3060] }};\n\n    fn forward(tokens: Tokens<64>) -> TokenLogits<64, 4001> {{\n        [Embedding(4001, \
         256), repeat(2, block()), LayerNorm, Linear(4001)]\n    }}\n\n    fn block() -> Block {{\n        [Add([], \
         [LayerNorm, CausalSelfAttention(4)]), Add([], [LayerNorm, Linear(1024), Gelu, Linear(256)])]\n    }}\n}}\n"
    )
}

const PLAIN: &str = "optimizer: AdamW {}, loss: CrossEntropy, checkpoint: None";

fn advice(arguments: &[&str]) -> Value {
    let (text, code) = printed(&[&["advise", "--format", "json"], arguments].concat());
    assert_eq!(code, 0);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["version"], 1);
    value
}

fn changes(advice: &Value) -> Vec<(String, i64, f64, u64)> {
    let change = |it: &Value| {
        let number = |value: &Value| value.as_f64().unwrap();
        let (name, saved) = (it["change"].as_str().unwrap().to_string(), it["saved"].as_i64().unwrap());
        (name, saved, number(&it["added_time"]), it["cost"]["total"].as_u64().unwrap())
    };
    advice["changes"].as_array().unwrap().iter().map(change).collect()
}

/// A change that is written in the source makes the network need exactly what was promised.
#[test]
fn what_is_promised_is_what_the_changed_network_needs() {
    let _alone = alone();
    write(&FIXTURE.join("advised.rs"), &net(PLAIN));
    let found = advice(&["advised.rs"]);
    let total = |options: &[&str]| fits(&[&["advised.rs"], options].concat())[0]["total"].as_u64().unwrap();
    assert_eq!(found["now"]["total"].as_u64().unwrap(), total(&[]));
    let changes = changes(&found);
    let written = [
        ("checkpoint: Cheap", PLAIN.replace("checkpoint: None", "checkpoint: Cheap")),
        ("checkpoint: Norms", PLAIN.replace("checkpoint: None", "checkpoint: Norms")),
        ("precision: Mixed(Bf16)", format!("{PLAIN}, precision: Mixed(Bf16)")),
        ("optimizer: AdamW8bit", PLAIN.replace("AdamW {}", "AdamW8bit {}")),
        ("optimizer: Sgd", PLAIN.replace("AdamW {}", "Sgd {}")),
        ("micro_batches: 4", format!("{PLAIN}, micro_batches: 4")),
        ("offload: OptimizerState", format!("{PLAIN}, offload: OptimizerState")),
        ("ranks: 2 and shard: Parameters", format!("{PLAIN}, ranks: 2, shard: Parameters")),
    ];
    let mut listed = 0;
    for (name, train) in written {
        write(&FIXTURE.join("changed.rs"), &net(&train));
        let now = fits(&["changed.rs"])[0]["total"].as_u64().unwrap();
        match changes.iter().find(|(change, ..)| change == name) {
            Some((.., promised)) => {
                assert_eq!(*promised, now, "{name}");
                listed += 1;
            }
            // It is left out because it saves neither memory nor time.
            None => assert!(now >= total(&[]), "{name} saves memory and is not listed: {changes:?}"),
        }
    }
    assert!(listed >= 6, "{changes:?}");
    let chunks = changes.iter().find(|(change, ..)| change.starts_with("CrossEntropy { chunks: ")).unwrap();
    let chunked = PLAIN.replace("CrossEntropy", &chunks.0);
    write(&FIXTURE.join("changed.rs"), &net(&chunked));
    assert_eq!(fits(&["changed.rs"])[0]["total"].as_u64().unwrap(), chunks.3);
    let batch = changes.iter().find(|(change, ..)| change == "batch: 16").unwrap();
    assert_eq!(total(&["--batch", "16"]), batch.3);
}

#[test]
fn the_best_change_is_first_and_none_is_worthless() {
    let _alone = alone();
    write(&FIXTURE.join("advised.rs"), &net(PLAIN));
    let all = changes(&advice(&["advised.rs", "--card", "t4"]));
    let memory: Vec<_> = all.iter().take_while(|change| change.1 > 0).collect();
    assert!(memory.len() >= 6 && memory.windows(2).all(|pair| worth(pair[0]) >= worth(pair[1])), "{all:?}");
    // After those come changes that take more and save time.
    assert!(all[memory.len()..].iter().all(|(_, saved, time, _)| *saved <= 0 && *time < 0.0), "{all:?}");
    // A T4 has no bfloat16 on its tensor cores.
    assert!(
        all.iter().any(|it| it.0 == "precision: Mixed(F16)") && all.iter().all(|it| !it.0.contains("Bf16")),
        "{all:?}"
    );
}

/// Returns the bytes that a change saves for each percent of time.
fn worth((_, saved, time, _): &(String, i64, f64, u64)) -> f64 {
    *saved as f64 / (100.0 * time).max(0.1)
}

/// True if a change is of another batch or of ranks, which is not tried together with something else.
fn is_another_task(change: &str) -> bool {
    change.starts_with("batch:") || change.contains("ranks:")
}

/// Returns the settings of `TRAIN` after `PLAIN` with two changes. `None` if the test does not know how one of them is written.
fn with_both(both: &str) -> Option<String> {
    let mut train = PLAIN.to_string();
    for change in both.split(" and ") {
        let (name, value) = change.split_once(": ")?;
        train = match name {
            "checkpoint" if value != "Auto" => train.replace("checkpoint: None", change),
            "optimizer" => train.replace("optimizer: AdamW {}", &format!("{change} {{}}")),
            "CrossEntropy { chunks" => train.replace("CrossEntropy", change),
            "precision" | "micro_batches" | "offload" => format!("{train}, {change}"),
            _ => return None,
        };
    }
    Some(train)
}

/// Two changes at once need what the network with both needs, and are better than each alone.
#[test]
fn two_changes_at_once_are_planned() {
    let _alone = alone();
    write(&FIXTURE.join("advised.rs"), &net(PLAIN));
    let all = changes(&advice(&["advised.rs"]));
    let pairs: Vec<_> =
        all.iter().filter(|change| with_both(&change.0).is_some() && change.0.contains(" and ")).collect();
    assert!(pairs.len() >= 2, "{all:?}");
    for pair in pairs {
        write(&FIXTURE.join("changed.rs"), &net(&with_both(&pair.0).unwrap()));
        assert_eq!(fits(&["changed.rs"])[0]["total"].as_u64().unwrap(), pair.3, "{}", pair.0);
        for part in pair.0.split(" and ") {
            // One that is not listed saves nothing.
            let Some(alone) = all.iter().find(|change| change.0 == part) else { continue };
            assert!(worth(pair) > worth(alone) || pair.2 < alone.2, "{pair:?} is not better than {alone:?}");
        }
    }
}

/// If no change alone makes a network fit, two that do are listed.
#[test]
fn two_changes_fit_where_none_does() {
    let _alone = alone();
    write(&FIXTURE.join("advised.rs"), &net(PLAIN));
    let found = advice(&["advised.rs"]);
    let usable = found["usable"].as_u64().unwrap();
    let all = changes(&found);
    let least = |both: bool| {
        let of = all.iter().filter(|change| change.0.contains(" and ") == both && !is_another_task(&change.0));
        of.map(|change| change.3).min().unwrap()
    };
    let (alone, both) = (least(false), least(true));
    assert!(both < alone, "{all:?}");
    let headroom = format!("{}KiB", (usable - (alone + both) / 2) >> 10);
    let tight = advice(&["advised.rs", "--headroom", &headroom]);
    assert_eq!(tight["now"]["fits"], false);
    let fitting: Vec<&str> = tight["changes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| it["cost"]["fits"] == true)
        .map(|it| it["change"].as_str().unwrap())
        .collect();
    let fitting: Vec<&str> = fitting.into_iter().filter(|change| !is_another_task(change)).collect();
    assert!(!fitting.is_empty() && fitting.iter().all(|change| change.contains(" and ")), "{fitting:?}");
    let (text, _) = printed(&["advise", "advised.rs", "--headroom", &headroom]);
    assert!(text.contains(&format!("  {}  ", fitting[0])), "{text}");
}

/// The format of frozen weights is a change, as `base` of each `lora` is written.
#[test]
fn a_base_of_lora_is_advised() {
    let _alone = alone();
    let net = |lora: &str| {
        format!(
            "use gpumem::prelude::*;\n\nnetwork! {{\n    pub struct Net;\n\n    const TRAIN: Train = Train {{ batch: 8, optimizer: \
             AdamW {{}}, loss: CrossEntropy, precision: Mixed(Bf16), cards: [RTX_3060] }};\n\n    fn forward(x: Features<512>) -> \
             Logits<10> {{\n        [lora(8, 16.0, repeat(6, [Linear(2048), Relu]){lora}), Linear(10)]\n    }}\n}}\n"
        )
    };
    write(&FIXTURE.join("adapted.rs"), &net(""));
    let all = changes(&advice(&["adapted.rs"]));
    for coding in ["Int8", "Nf4", "Nf4Double"] {
        let name = format!("base = {coding} in lora(..)");
        let change = all.iter().find(|change| change.0 == name).unwrap_or_else(|| panic!("{name}: {all:?}"));
        write(&FIXTURE.join("changed.rs"), &net(&format!(", base = {coding}")));
        assert_eq!(fits(&["changed.rs"])[0]["total"].as_u64().unwrap(), change.3, "{name}");
        assert!(change.1 > 0, "{change:?}");
    }
    write(&FIXTURE.join("coded.rs"), &net(", base = Nf4"));
    let coded = changes(&advice(&["coded.rs"]));
    assert!(coded.iter().all(|change| !change.0.contains("in lora(..)")), "{coded:?}");
}

/// The states of a named step are declared by the programs of all steps, so that its optimizer changes each of them.
#[test]
fn an_optimizer_of_a_named_step_is_advised() {
    let _alone = alone();
    let net = |optimizer: &str| {
        format!(
            "use gpumem::prelude::*;\n\nnetwork! {{\n    pub struct Two;\n\n    const HEAD: Train = Train {{ batch: 8, trains: \
             \"head*\", optimizer: Sgd {{}}, loss: Mse, cards: [RTX_3060] }};\n    const BODY: Train = Train {{ batch: 8, trains: \
             \"body*\", optimizer: {optimizer} {{}}, loss: Mse, cards: [RTX_3060] }};\n\n    fn forward(x: Features<512>) -> \
             Features<4> {{\n        [Linear(2048, name = \"body\"), Relu, Linear(4, name = \"head\")]\n    }}\n}}\n"
        )
    };
    write(&FIXTURE.join("two.rs"), &net("AdamW"));
    let all = changes(&advice(&["two.rs"]));
    let change = all.iter().find(|change| change.0 == "optimizer: Sgd").unwrap_or_else(|| panic!("{all:?}"));
    // The weights of the body are 2048 rows of 512, with two states of 4 bytes.
    assert!(change.1 >= 2048 * 512 * 8, "{change:?}");
    write(&FIXTURE.join("changed.rs"), &net("Sgd"));
    assert_eq!(advice(&["changed.rs"])["now"]["total"].as_u64().unwrap(), change.3);
}

#[test]
fn settings_that_cost_time_are_offered_to_be_undone() {
    let _alone = alone();
    let train = "optimizer: AdamW {}, loss: CrossEntropy, checkpoint: Cheap, micro_batches: 4, offload: OptimizerState";
    write(&FIXTURE.join("slow.rs"), &net(train));
    let all = changes(&advice(&["slow.rs"]));
    for name in ["checkpoint: None", "offload: None"] {
        assert!(all.iter().any(|(change, _, time, _)| change == name && *time < 0.0), "{name}: {all:?}");
    }
}

#[test]
fn hints_name_what_tensor_cores_miss() {
    let _alone = alone();
    write(&FIXTURE.join("advised.rs"), &net(PLAIN));
    let of = |options: &[&str]| advice(&[&["advised.rs"], options].concat())["hints"].clone();
    assert_eq!(of(&[])["tensor_cores"].as_array().unwrap().len(), 0, "no tensor cores in f32");
    let hints = of(&["--precision", "bf16"]);
    let [size] = hints["tensor_cores"].as_array().unwrap().as_slice() else { panic!("{hints}") };
    assert_eq!(
        (&size["dimension"], &size["size"], &size["padded"][0], &size["padded"][1]),
        (&"out_features".into(), &4001.into(), &4008.into(), &4032.into())
    );
    assert!(hints["memory_bound"].as_f64().unwrap() > 0.0 && !hints["smallest_cards"].as_array().unwrap().is_empty());
    assert_eq!(of(&["--precision", "bf16", "--card", "t4"])["tensor_cores"].as_array().unwrap().len(), 0);
    let (text, _) = printed(&["advise", "advised.rs", "--precision", "bf16"]);
    assert!(text.starts_with("Net, batch 32, Bf16, RTX 3060: ") && text.is_ascii(), "{text}");
    assert!(text.contains("4001 out_features of ") && text.contains("4008 is the next (+0.17 % products)"), "{text}");
    assert!(text.contains("the smallest cards that it fits as it is: "), "{text}");
}

#[test]
fn a_forward_pass_has_advice_too() {
    let _alone = alone();
    write(&FIXTURE.join("advised.rs"), &net(PLAIN));
    let found = advice(&["advised.rs", "--inference"]);
    assert_eq!(found["program"], "infer");
    assert!(changes(&found).iter().any(|(change, saved, ..)| change == "precision: Bf16" && *saved > 0), "{found}");
}

#[test]
fn mistakes_of_advise_are_told() {
    let _alone = alone();
    write(&FIXTURE.join("advised.rs"), &net(PLAIN));
    let message = failure(&["advise", "advised.rs", "--card", "11GiB"]);
    assert!(message.contains("a size has no speed") && message.contains("--card rtx3060"), "{message}");
    assert!(failure(&["advise", "advised.rs", "--card", "rtx3061"]).contains("did you mean rtx3060?"));
    write(&FIXTURE.join("nowhere.rs"), &net(PLAIN).replace(", cards: [RTX_3060]", ""));
    assert!(failure(&["advise", "nowhere.rs"]).contains("`Net` names no card: give one with `--card rtx3060`"));
    assert!(failure(&["advise", "advised.rs", "--batch", "largest"]).contains("`--batch largest` is for"));
}
