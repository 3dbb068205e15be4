//! Each format against the program that it shows.

use super::{NETWORKS, column, command, file, json, number, placed, printed, sources, text};
use gpumem_core::memory::budget::{Line, padded};
use gpumem_core::program::Class;
use quick_xml::events::Event;
use serde_json::Value;
use std::process::Command;

/// Tensors that a timeline of the program has: its own, master copies, and the next batch of a training step.
fn tensors_of(source: &str) -> usize {
    let placed = placed(source).0;
    let masters = placed.masters.iter().flatten().count();
    let is_batch = |class: Class| matches!(class, Class::Input | Class::Target);
    let batch = placed.program.tensors.iter().filter(|tensor| placed.program.training && is_batch(tensor.class));
    placed.program.tensors.len() + masters + batch.count()
}

/// The categories of a plan's tensors: name and `where` of each.
fn categories(plan: &Value) -> Vec<(String, String)> {
    let all = plan["categories"].as_array().unwrap();
    let texts = |index: u64| {
        let category = &all[usize::try_from(index).unwrap()];
        (category["name"].as_str().unwrap().to_string(), category["where"].as_str().unwrap().to_string())
    };
    column(plan, "tensors", "category").into_iter().map(texts).collect()
}

/// The live bytes at each operation, with padding, from the columns alone.
fn live(plan: &Value) -> Vec<u64> {
    let operations = plan["operations"]["verb"].as_array().unwrap().len();
    let mut live = vec![0; operations];
    let columns = ["bytes", "first", "last"].map(|name| column(plan, "tensors", name));
    for (index, (_, place)) in categories(plan).iter().enumerate() {
        let [bytes, first, last] = [0, 1, 2].map(|at| columns[at][index]);
        if place != "host" {
            live[first as usize..=last as usize].iter_mut().for_each(|sum| *sum += padded(bytes));
        }
    }
    live
}

#[test]
fn the_data_are_those_of_the_program() {
    let folder = sources();
    for (name, source) in NETWORKS {
        let plan = json(folder.path(), &[&file(name)]);
        let (placed, budget) = placed(source);
        assert_eq!(
            (&plan["format"], &plan["version"], &plan["network"]),
            (&"gpumem-timeline".into(), &1.into(), &name.into())
        );
        assert_eq!(column(&plan, "tensors", "bytes").len(), tensors_of(source), "{name}");
        assert_eq!(column(&plan, "operations", "verb").len(), placed.program.operations.len(), "{name}");
        for (index, tensor) in placed.program.tensors.iter().enumerate() {
            assert_eq!(column(&plan, "tensors", "bytes")[index], placed.bytes[index], "{name}: {}", tensor.name);
        }
        let line = |line: Line| number(&plan["budget"]["bytes"][line as usize]);
        Line::parts().chain([Line::Arena]).for_each(|part| assert_eq!(line(part), budget[part], "{name}"));
        // The peak, its operation, and the lines that last follow from the columns alone.
        let live = live(&plan);
        let most = *live.iter().max().unwrap();
        assert_eq!((most, number(&plan["budget"]["lower_bound"])), (budget.lower_bound, budget.lower_bound), "{name}");
        assert_eq!(live.iter().position(|sum| *sum == most), Some(budget.peak as usize), "{name}");
        let sum = |category: &str| {
            let bytes = column(&plan, "tensors", "bytes");
            categories(&plan)
                .iter()
                .zip(bytes)
                .filter(|((name, _), _)| name == category)
                .map(|(_, bytes)| bytes)
                .sum::<u64>()
        };
        for (category, part) in [
            ("weights", Line::Weights),
            ("master copies", Line::Master),
            ("optimizer", Line::Optimizer),
            ("moving averages", Line::Ema),
            ("buffers", Line::Buffers),
            ("gradients", Line::Gradients),
            ("batch", Line::BatchIo),
            ("cache", Line::Cache),
        ] {
            assert_eq!(sum(category), budget[part], "{name}: {category}");
        }
    }
}

/// Every category has a tensor in one of the networks, so that the tests look at all.
#[test]
fn the_networks_have_every_category() {
    let folder = sources();
    let plans = NETWORKS.map(|(name, _)| json(folder.path(), &[&file(name)]));
    let found: Vec<String> = plans.iter().flat_map(categories).map(|(name, _)| name).collect();
    for category in plans[0]["categories"].as_array().unwrap() {
        let name = category["name"].as_str().unwrap();
        assert!(found.iter().any(|other| other == name), "{name}");
    }
}

/// No two live tensors overlap, and uses lie within live ranges.
#[test]
fn rectangles_are_apart() {
    let folder = sources();
    for (name, _) in NETWORKS {
        let plan = json(folder.path(), &[&file(name)]);
        let [bytes, offset, first, last] =
            ["bytes", "offset", "first", "last"].map(|name| column(&plan, "tensors", name));
        let arena = number(&plan["budget"]["bytes"][Line::Arena as usize]);
        let places = categories(&plan);
        let in_arena: Vec<usize> = (0..bytes.len()).filter(|&index| places[index].1 != "host").collect();
        for (at, &one) in in_arena.iter().enumerate() {
            let end = |index: usize| offset[index] * 256 + padded(bytes[index]);
            assert!(end(one) <= arena, "{name}");
            for &other in &in_arena[at + 1..] {
                let meet = first[one] <= last[other] && first[other] <= last[one];
                let overlap = offset[one] * 256 < end(other) && offset[other] * 256 < end(one);
                assert!(!(meet && overlap), "{name}: {one} and {other}");
            }
            let mut use_at = 0;
            for step in plan["tensors"]["uses"][one].as_array().unwrap() {
                use_at += number(step) >> 2;
                assert!((first[one]..=last[one]).contains(&use_at) && number(step) & 3 != 0, "{name}: {one}");
            }
        }
    }
}

/// A layer has the line at which it is written, and that of the call of its block.
#[test]
fn layers_have_their_source_lines() {
    let folder = sources();
    let plan = json(folder.path(), &["plain.rs"]);
    let paths: Vec<&str> =
        plan["layers"]["path"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    let lines = |path: &str| {
        let row = paths.iter().position(|other| *other == path).unwrap();
        let mut next = plan["layers"]["source"][row].as_i64().unwrap();
        let mut lines = Vec::new();
        while next >= 0 {
            let line = &plan["sources"]["lines"][usize::try_from(next).unwrap()];
            let file = usize::try_from(number(&line[0])).unwrap();
            lines.push((plan["sources"]["files"][file].as_str().unwrap().to_string(), number(&line[1])));
            next = line[2].as_i64().unwrap();
        }
        lines
    };
    let at = |line: u64| ("plain.rs".to_string(), line);
    assert_eq!(lines("conv2d"), [at(8)]);
    assert_eq!(lines("stage[0].conv2d"), [at(16), at(9)]);
    assert_eq!(lines("stage[2].max_pool2d"), [at(17), at(9)]);
    assert_eq!(lines("linear"), [at(10)]);
    let csv = text(&printed(folder.path(), &["plain.rs", "-o", "-", "--format", "csv"]));
    let row = csv.lines().find(|line| line.starts_with("stage[1].conv2d.weight,")).unwrap();
    assert!(row.contains(",weights,stage[1].conv2d,") && row.ends_with(",plain.rs:16"), "{row}");
}

#[test]
fn a_csv_has_a_line_for_each_tensor() {
    let folder = sources();
    for (name, source) in NETWORKS {
        let csv = text(&printed(folder.path(), &[&file(name), "-o", "-", "--format", "csv"]));
        assert_eq!(csv.lines().count(), tensors_of(source) + 1, "{name}");
        assert_eq!(csv.lines().next(), Some("tensor,category,layer,shape,bytes,offset,first,last,source"));
    }
}

/// The picture is XML, and its map has a rectangle for each tensor in the arena.
#[test]
fn a_picture_has_a_rectangle_for_each_tensor() {
    let folder = sources();
    for (name, _) in NETWORKS {
        let picture = text(&printed(folder.path(), &[&file(name), "-o", "-", "--format", "svg"]));
        let mut reader = quick_xml::Reader::from_str(&picture);
        let mut rectangles = 0;
        loop {
            match reader.read_event().unwrap_or_else(|error| panic!("{name}: {error}")) {
                Event::Empty(tag) if tag.name().as_ref() == "path" => {
                    let path = tag.attributes().flatten().find(|attribute| attribute.key.as_ref() == "d").unwrap();
                    rectangles += path.value.matches('z').count();
                }
                Event::Eof => break,
                _ => {}
            }
        }
        let plan = json(folder.path(), &[&file(name)]);
        let sizes = column(&plan, "tensors", "bytes");
        let in_arena =
            categories(&plan).iter().zip(sizes).filter(|((_, place), size)| place != "host" && *size > 0).count();
        assert_eq!(rectangles, in_arena, "{name}");
        assert!(picture.contains("<title>") && !picture.contains("NaN") && !picture.contains("inf"), "{name}");
    }
}

/// Python reads the snapshot, and what it says of memory is what the budget says.
#[test]
fn python_reads_the_snapshot() {
    let folder = sources();
    std::fs::write(folder.path().join("read.py"), include_str!("read.py")).unwrap();
    for (name, source) in NETWORKS {
        let snapshot = format!("{name}.pickle");
        printed(folder.path(), &[&file(name), "-o", &snapshot]);
        let output = Command::new("python3").args(["read.py", &snapshot]).current_dir(folder.path()).output();
        let output = output.expect("python3 is needed");
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        let (_, budget) = placed(source);
        let expected = format!("{} {} {}\n", budget.lower_bound, budget[Line::Arena], file(name));
        assert_eq!(text(&output.stdout), expected, "{name}");
    }
}

/// A plan beside itself differs in nothing, and beside another in what was changed.
#[test]
fn two_plans_are_compared() {
    let folder = sources();
    let both = json(folder.path(), &["plain.rs", "--against", "batch=64"]);
    assert_eq!(both[0]["budget"], both[1]["budget"]);
    assert_eq!(both[0]["tensors"], both[1]["tensors"]);
    let both = json(folder.path(), &["plain.rs", "--against", "batch=32,precision=mixed-bf16"]);
    let alone = json(folder.path(), &["plain.rs", "--batch", "32", "--precision", "mixed-bf16"]);
    assert_eq!(both[1]["tensors"], alone["tensors"]);
    assert_eq!((number(&both[0]["batch"]), number(&both[1]["batch"])), (64, 32));
    assert_eq!(both[1]["precision"], "Mixed(Bf16)");
}

/// Returns a change as `--against` takes it. `None` if it is no setting there.
fn setting(change: &str) -> Option<String> {
    if let Some(chunks) = change.strip_prefix("CrossEntropy { chunks: ") {
        return Some(format!("chunks={}", chunks.trim_end_matches(" }")));
    }
    let (name, value) = change.split_once(": ")?;
    // `Auto` is listed as the leanest step, and taken as what fits.
    let is_setting = ["batch", "precision", "checkpoint", "micro_batches", "offload", "update"].contains(&name);
    let value = value.split(" (").next()?;
    (is_setting && value != "Auto" && !change.contains(" and ")).then(|| format!("{name}={value}"))
}

/// Alternatives are planned: each is the plan that the command makes with that setting.
#[test]
fn alternatives_are_plans() {
    let folder = sources();
    let mut looked_at = Vec::new();
    for name in ["plain.rs", "parts.rs"] {
        let plan = json(folder.path(), &[name]);
        for alternative in plan["alternatives"].as_array().unwrap() {
            let change = alternative["change"].as_str().unwrap();
            let Some(setting) = setting(change) else { continue };
            let both = json(folder.path(), &[name, "--against", &setting]);
            assert_eq!(both[1]["budget"]["bytes"], alternative["bytes"], "{name}: {change}");
            assert_eq!(both[1]["least_us"], alternative["least_us"], "{name}: {change}");
            let recomputed = column(&both[1], "operations", "phase").into_iter().filter(|phase| *phase == 4).count();
            assert_eq!(recomputed as u64, number(&alternative["recomputed"]), "{name}: {change}");
            looked_at.push(setting);
        }
    }
    for expected in
        ["batch=32", "precision=Mixed(Bf16)", "micro_batches=2", "checkpoint=Budget(0.5)", "offload=All", "batch=16"]
    {
        assert!(looked_at.iter().any(|setting| setting == expected), "{expected}: {looked_at:?}");
    }
}

/// The page lists the single changes of `advise` on as many cards, in the same order and with the same bytes.
#[test]
fn alternatives_are_those_of_advise() {
    let folder = sources();
    for (name, _) in NETWORKS {
        let plan = json(folder.path(), &[&file(name), "--card", "rtx3060"]);
        let advice = command(folder.path(), "advise", &[&file(name), "--card", "rtx3060", "--format", "json"]);
        let advice: Value = serde_json::from_slice(&advice.stdout).unwrap();
        let total = |alternative: &Value| alternative["bytes"].as_array().unwrap().last().unwrap().clone();
        let on_page = plan["alternatives"].as_array().unwrap().iter();
        let on_page: Vec<(Value, Value)> = on_page.map(|it| (it["change"].clone(), total(it))).collect();
        let is_single = |it: &&Value| {
            let change = it["change"].as_str().unwrap();
            !change.contains(" and ") && !change.starts_with("ranks")
        };
        let advised = advice["changes"].as_array().unwrap().iter().filter(is_single);
        let advised: Vec<(Value, Value)> =
            advised.map(|it| (it["change"].clone(), it["cost"]["total"].clone())).collect();
        assert_eq!(on_page, advised, "{name}");
        assert!(!advised.is_empty(), "{name}");
        let now = plan["budget"]["bytes"].as_array().unwrap().last().unwrap();
        assert_eq!(*now, advice["now"]["total"], "{name}");
    }
}

/// A tensor that goes to host memory and back has three entries, which know each other.
#[test]
fn lives_of_parked_tensors_are_linked() {
    let folder = sources();
    let plan = json(folder.path(), &["parked.rs"]);
    let [bytes, first, last] = ["bytes", "first", "last"].map(|name| column(&plan, "tensors", name));
    let categories = categories(&plan);
    let parked = plan["parked"].as_array().unwrap();
    let activations = categories.iter().filter(|(name, _)| name == "parked activations").count();
    assert!(!parked.is_empty() && parked.len() == activations);
    for lives in parked {
        let [before, host, after] = [0, 1, 2].map(|at| usize::try_from(number(&lives[at])).unwrap());
        assert_eq!(categories[host].0, "parked activations");
        assert!(categories[before].1 == "step" && categories[after].1 == "step", "{lives}");
        assert!(bytes[before] == bytes[host] && bytes[host] == bytes[after], "{lives}");
        assert!(first[before] < first[host] && last[before] < first[after] && first[after] < last[host] + 1, "{lives}");
    }
    assert!(json(folder.path(), &["plain.rs"])["parked"].as_array().unwrap().is_empty());
}

/// The page has the data that `--format json` writes, and its scripts.
#[test]
fn a_page_has_the_data() {
    let folder = sources();
    let page = text(&printed(folder.path(), &["plain.rs", "-o", "-", "--format", "html"]));
    let data =
        page.split("<script type=\"application/json\" id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data, Value::from(vec![json(folder.path(), &["plain.rs"])]));
    assert!(page.contains("default-src 'none'") && page.len() < 1 << 20);
}
