//! Records of a run on a card, in JSON: what each program launches, who computes it, how long it takes beside the roof.
#![allow(dead_code, reason = "each program that includes this file uses a part of it")]

use gpumem_core::error::Error;
use gpumem_core::report::roofline::Rates;
use gpumem_cuda::Call;
use gpumem_cuda::convolution::Pass;
use gpumem_cuda::preflight::Versions;
use gpumem_cuda::profile::{CardFacts, Launched, NanProduct, Profile, Program};
use gpumem_cuda::traffic::Counted;
use serde_json::{Map, Value, json};

/// The card with what its libraries say of it, and their versions.
pub fn card(facts: &CardFacts) -> Value {
    let version = |version: Option<(i32, i32)>| version.map(|(major, minor)| format!("{major}.{minor}"));
    let Versions { cuda, compiler, products, convolutions, .. } = Versions::found();
    // As an object, to be read by whoever describes the card to the library again; as it came if it is none.
    let property = |text: &String| serde_json::from_str(text).unwrap_or_else(|_| json!(text));
    let nan = |it: &NanProduct| {
        let dtype = format!("{:?}", it.element).to_lowercase();
        json!({ "dtype": dtype, "epilogue": it.epilogue, "keeps_nan": it.keeps_nan })
    };
    let failed = |error: &Error| json!({ "failed": error.to_string() });
    let property = |text: &Option<String>| text.as_ref().map_or(Value::Null, property);
    let all = |found: &Vec<NanProduct>| found.iter().map(nan).collect::<Value>();
    json!({
        "name": facts.name,
        "slug": facts.row.map(|row| row.slug),
        "capability": format!("{}.{}", facts.capability.0, facts.capability.1),
        "memory": facts.memory,
        "cuda": version(cuda),
        "nvrtc": version(compiler),
        "cublaslt": version(products),
        "cudnn": version(convolutions),
        "device_property": facts.device_property.as_ref().map_or_else(failed, property),
        "nan_products": facts.nan_products.as_ref().map_or_else(failed, all),
    })
}

/// What was measured of a network, beside the rates of the card where they are known.
pub fn profile(profile: &Profile, rates: Option<Rates>) -> Map<String, Value> {
    let mut object = Map::new();
    let timed = profile.programs.iter().flat_map(|program| &program.launches);
    let sum: f64 = timed.filter_map(|launch| Some(launch.runs as f64 * median(&launch.us)?)).sum();
    let mut put = |key: &str, value: Value| _ = object.insert(key.to_string(), value);
    put("rates", rates.map_or(Value::Null, |rates| json!({ "bytes": rates.bytes, "flops": rates.flops })));
    put("step_us", json!(median(&profile.step_us)));
    put("step_us_each", json!(profile.step_us));
    put("launches_us", json!((sum > 0.0).then_some(sum)));
    put("programs", profile.programs.iter().map(|it| program(it, rates)).collect());
    object
}

fn program(program: &Program, rates: Option<Rates>) -> Value {
    let launches: Vec<Value> = program.launches.iter().map(|it| Value::Object(launched(it, rates))).collect();
    json!({ "program": program.name, "graphs": program.graphs, "launches": launches })
}

/// A launch as it was counted, with who computes it and, if it was timed, how much it moved and multiplied in a second.
fn launched(launch: &Launched, rates: Option<Rates>) -> Map<String, Value> {
    let (counted, choice) = (&launch.counted, launch.choice.as_ref());
    let mut object = object(counted);
    let mut put = |key: &str, value: Value| _ = object.insert(key.to_string(), value);
    put("runs", json!(launch.runs));
    put("computed_by", json!(choice.map_or("gpumem", |choice| choice.library)));
    match &counted.call {
        Call::Kernel(kernel) => {
            put("grid", json!(kernel.grid));
            put("block", json!(kernel.block));
        }
        Call::Product(product) => put("what", json!(product.to_string())),
        Call::Convolution(convolution) => put("what", json!(convolution.to_string())),
        Call::Attention(attention) => put("what", json!(attention.to_string())),
        Call::Recurrence(recurrence) => put("what", json!(recurrence.to_string())),
        Call::Passage(_) | Call::Exchange(_) => {}
    }
    if let Some(choice) = choice {
        put("algorithm", json!(choice.algorithm));
        put("settings", choice.settings.iter().map(|(name, value)| (name.clone(), json!(value))).collect());
        put("workspace_taken", json!(choice.workspace));
    }
    if let Some(us) = median(&launch.us) {
        let least = launch.us.iter().copied().fold(f64::INFINITY, f64::min);
        // Of a time that is nothing, there is no rate.
        let per = |count: u64, scale: f64| (us > 0.0).then(|| count as f64 / us / scale);
        put("us", json!(us));
        put("least_us", json!(least));
        put("gb_per_s", json!(per(counted.bytes(), 1e3)));
        put("tflops", json!(per(counted.flops, 1e6)));
        let roof = rates.map(|rates| 1e3 * rates.ms(counted.bytes(), counted.flops));
        put("roof_us", json!(roof));
    }
    object
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (below, above) = (sorted.get(sorted.len().saturating_sub(1) / 2)?, sorted.get(sorted.len() / 2)?);
    Some((below + above) / 2.0)
}

fn pass(pass: Pass) -> &'static str {
    match pass {
        Pass::Forward => "forward",
        Pass::BackwardData => "backward_data",
        Pass::BackwardFilter => "backward_filter",
    }
}

/// A launch as it is counted without a card.
pub fn object(launch: &Counted) -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| _ = object.insert(key.to_string(), value);
    put("path", json!(launch.path));
    put("phase", json!(format!("{:?}", launch.phase).to_lowercase()));
    put("call", json!(launch.kind()));
    if let Call::Kernel(kernel) = &launch.call {
        put("file", json!(kernel.kernel.file));
        put("entry", json!(kernel.kernel.entry));
    }
    put("reads", json!(launch.reads));
    put("writes", json!(launch.writes));
    put("flops", json!(launch.flops));
    put("layout", json!(launch.layout));
    put("dtype", json!(format!("{:?}", launch.format).to_lowercase()));
    put("workspace", json!(launch.workspace));
    if let Call::Convolution(convolution) = &launch.call {
        put("pass", json!(pass(convolution.pass)));
        put("batch", json!(convolution.batch));
        put("in_channels", json!(convolution.in_channels));
        put("height", json!(convolution.input[0]));
        put("width", json!(convolution.input[1]));
        put("out_channels", json!(convolution.out_channels));
        put("kernel", json!(convolution.kernel));
        put("stride", json!(convolution.stride));
        put("padding", json!(convolution.padding));
        put("groups", json!(convolution.groups));
    }
    object
}
