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
    let worth = |(_, saved, time, _): &(String, i64, f64, u64)| *saved as f64 / (100.0 * time).max(0.1);
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
