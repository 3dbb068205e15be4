//! Reports: the least time of each layer on a card, and what JSON says beside figures.

use gpumem::cards::{H200, JETSON_ORIN_NANO_8GB, RTX_3060};
use gpumem::prelude::*;
use gpumem::report::roofline;
use gpumem::report::roofline::Work;

network! {
    pub struct Wide;

    const TRAIN: Train = Train { batch: 512, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(x: Features<4096>) -> Logits<1000> {
        [Linear(4096), Relu, LayerNorm, Linear(1000)]
    }
}

#[test]
fn every_layer_has_its_least_time() {
    let found = roofline::<Wide>(&RTX_3060).unwrap();
    // Forward, the gradient of each weight, and that of each input but the network's.
    let [large, small] = [2u64 * 512 * 4096 * 4096, 2 * 512 * 4096 * 1000];
    let flops: u64 = found.spent.iter().map(|spent| spent.flops).sum();
    assert_eq!(flops, 2 * large + 3 * small);
    let by_work: f64 = Work::ALL.iter().map(|&work| found.ms_of(work)).sum();
    assert!((by_work - found.ms()).abs() < 1e-9 * found.ms());
    let first = &found.spent[0];
    assert_eq!((first.layer, first.work, first.flops), (Some(0), Work::Contraction, large));
    // x, weight, bias and y in f32.
    assert_eq!(first.bytes, 4 * (512 * 4096 + 4096 * 4096 + 4096 + 512 * 4096));
    assert!(!first.memory_bound && first.intensity() > 100.0);
    assert!((first.ms - large as f64 / RTX_3060.fp32_tflops.unwrap() / 1e9).abs() < 1e-9);
    let norm = found.spent.iter().find(|spent| spent.work == Work::Normalisation).unwrap();
    assert!(norm.memory_bound && norm.flops == 0);
}

#[test]
fn the_table_begins_with_the_kinds_of_work() {
    let text = roofline::<Wide>(&H200).unwrap().to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("Wide on H200: at least ") && lines[0].ends_with(" ms for a step of 512"), "{text}");
    assert!(lines[1].starts_with("  tensor contraction"), "{text}");
    assert!(lines[2].starts_with("  normalisation") && lines[3].starts_with("  element-wise"), "{text}");
    assert!(lines[4].contains("linear[0]") && lines[4].ends_with("compute"), "the longest first: {text}");
    assert!(roofline::<Wide>(&JETSON_ORIN_NANO_8GB).is_ok());
}

/// A report says how gradients are clipped, and how the rate changes.
#[test]
fn reports_have_the_descent() {
    network! {
        struct Descends;
        const TRAIN: Train = Train {
            batch: 3, loss: Mse, clip: GlobalNorm(0.5), schedule: Cosine { warmup: 100, total: 5000, min: 1e-6 },
        };
        fn forward(x: Features<4>) -> Features<3> { [Linear(3)] }
    }
    let json: serde_json::Value = serde_json::from_str(&gpumem::report::json::<Descends>()).unwrap();
    assert_eq!(json["train"]["clip"], serde_json::json!({ "name": "GlobalNorm", "value": 0.5 }));
    let schedule = serde_json::json!({ "name": "Cosine", "warmup": 100, "total": 5000, "min": 1e-6 });
    assert_eq!(json["train"]["schedule"], schedule);
    assert!(json["infer"].get("clip").is_none() && json["infer"].get("schedule").is_none());
    let json: serde_json::Value = serde_json::from_str(&gpumem::report::json::<Wide>()).unwrap();
    assert!(json["train"]["clip"].is_null());
    assert_eq!(json["train"]["schedule"], serde_json::json!({ "name": "Constant", "warmup": 0 }));
}

/// Of a card, `fits` says what the compiler says: what stays free for others counts.
#[test]
fn reports_count_the_headroom() {
    network! {
        struct Crowded;
        const INFER: Infer = Infer { batch: 3, headroom: 8 << 30 };
        fn forward(x: Features<4>) -> Features<3> { [Linear(3)] }
    }
    let json: serde_json::Value = serde_json::from_str(&gpumem::report::json::<Crowded>()).unwrap();
    assert!(json["train"].is_null());
    for card in json["cards"].as_array().unwrap() {
        let fits = json["infer"]["total"].as_u64().unwrap() + (8 << 30) <= card["usable"].as_u64().unwrap();
        assert_eq!((card["fits"].as_bool(), card["max_batch"].as_u64() > Some(0)), (Some(fits), fits), "{card}");
    }
}
