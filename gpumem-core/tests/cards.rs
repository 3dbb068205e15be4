//! The generated table of cards against `data/cards.csv`, column by column.

use gpumem_core::cards::{self, ALIASES, ALL, Architecture, Basis, Card, find};

fn rows() -> Vec<std::collections::HashMap<String, String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/cards.csv");
    csv::Reader::from_path(path).unwrap().deserialize().map(Result::unwrap).collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn optional<T: std::str::FromStr>(text: &str) -> Option<T> {
    (!text.is_empty()).then(|| text.parse().ok().unwrap())
}

#[test]
fn every_column_of_every_row_is_in_the_table() {
    let rows = rows();
    assert_eq!(rows.len(), ALL.len());
    for row in &rows {
        let card: &Card = ALL.iter().find(|card| card.slug == row["slug"]).unwrap();
        assert_eq!(card.name, row["name"]);
        assert_eq!(card.architecture.name(), row["arch"]);
        let (major, minor) = card.compute_capability;
        assert_eq!(format!("{major}.{minor}"), row["compute_capability"]);
        assert_eq!(card.spec_mib.to_string(), row["vram_spec_mib"]);
        assert_eq!(card.usable_mib.to_string(), row["usable_mib"]);
        let basis = match card.basis {
            Basis::Measured => "measured",
            Basis::Estimated => "estimated",
            other => panic!("the table has no {other:?}"),
        };
        assert_eq!(basis, row["usable_basis"]);
        assert_eq!(card.source, row["usable_source"]);
        assert_eq!(card.host_mib, optional(&row["host_mib"]).unwrap_or(0));
        assert_eq!(card.host_source, row["host_source"]);
        assert_eq!(card.memory, row["mem_type"]);
        assert_eq!(card.bus_bits, optional(&row["bus_bits"]));
        assert_eq!(card.bandwidth_gbs, optional(&row["bandwidth_gbs"]));
        assert_eq!(card.host_link, row["host_link"]);
        assert_eq!(card.multiprocessors, optional(&row["sm_count"]));
        assert_eq!(card.cuda_cores, optional(&row["cuda_cores"]));
        assert_eq!(card.fp32_tflops, optional(&row["fp32_tflops"]));
        assert_eq!(card.tensor_fp16_tflops, optional(&row["tensor_fp16_dense_tflops"]));
        assert_eq!(card.has_multicast, row["multicast"] == "yes");
        assert_eq!(card.notes, row["notes"]);
        let aliases: Vec<&str> = ALIASES.iter().filter(|alias| alias.card == card).map(|alias| alias.slug).collect();
        assert_eq!(aliases.join(" "), row["aliases"]);
        assert_eq!(row.len(), 21, "a column that this test does not know");
    }
}

/// Rates of copies to the host are within what the connection is rated at: 0.985 GB/s for a lane of PCIe 3.0, and twice as many for each later one.
#[test]
fn a_link_to_the_host_has_its_rate() {
    for card in ALL {
        let rated = match card.host_link.strip_prefix("PCIe ") {
            Some(link) => {
                let (generation, lanes) = link.split_once(" x").unwrap();
                let generation: f64 = generation.parse().unwrap();
                0.985 * (generation - 3.0).exp2() * lanes.parse::<f64>().unwrap()
            }
            None if card.host_link == "NVLink-C2C" => 450.0,
            None => {
                assert!(card.host_link == "shared memory" && card.is_unified(), "{}", card.slug);
                card.bandwidth_gbs.unwrap() / 2.0
            }
        };
        let share = card.host_gbs / rated;
        let expected = if card.is_unified() { 0.999..1.001 } else { 0.78..0.81 };
        assert!(expected.contains(&share), "{}: {share}", card.slug);
    }
    // A slice shares the connection of its card.
    for slice in ALL.iter().filter(|card| card.slug.contains("-mig-")) {
        let (chip, _) = slice.slug.split_once('-').unwrap();
        let whole = ALL.iter().find(|other| other.slug.starts_with(chip) && !other.slug.contains("-mig-")).unwrap();
        assert_eq!(slice.host_link, whole.host_link, "{}", slice.slug);
    }
    let gbs = |slug: &str| find(slug).unwrap().host_gbs;
    assert_eq!(["t4", "rtx3060", "rtx4060", "h100-sxm"].map(gbs), [12.5, 25.0, 12.5, 50.0]);
}

#[test]
fn all_is_sorted_and_names_are_unique() {
    assert!(ALL.is_sorted_by_key(Card::usable));
    let names: [fn(&Card) -> &'static str; 3] = [|card| card.slug, |card| card.constant, |card| card.short_name];
    for name in names {
        let mut names: Vec<_> = ALL.iter().map(name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}

/// A name without the size or the form means the smallest card that it can mean.
#[test]
fn aliases_mean_the_smallest() {
    for alias in ALIASES {
        assert!(ALL.iter().all(|card| card.slug != alias.slug && card.constant != alias.constant), "{}", alias.slug);
        assert_eq!(alias.constant.replace('_', "").to_lowercase(), alias.slug.replace('-', ""));
        assert!(!alias.card.is_slice());
        let laptop = alias.slug.contains("laptop");
        let same = |card: &&Card| card.slug.starts_with(&format!("{}-", alias.slug)) && !card.is_slice();
        let smallest = ALL.iter().filter(same).find(|card| card.slug.contains("laptop") == laptop);
        assert!(smallest.is_none_or(|card| card == alias.card), "{}", alias.slug);
    }
    let mut slugs: Vec<_> = ALIASES.iter().map(|alias| alias.slug).collect();
    slugs.sort();
    slugs.dedup();
    assert_eq!(slugs.len(), ALIASES.len());
    assert_eq!(cards::A100, cards::A100_40GB);
    assert_eq!(cards::H100, cards::H100_PCIE);
    assert_eq!(cards::RTX_3060_12GB, cards::RTX_3060);
}

/// By slug, constant and alias, whatever separates the words, in const evaluation too.
#[test]
fn cards_are_found_by_their_names() {
    for card in ALL {
        for name in [card.slug, card.constant, &card.slug.replace('-', ""), &card.constant.replace('_', " ")] {
            assert_eq!(find(name), Some(card), "{name}");
        }
    }
    for alias in ALIASES {
        for name in [alias.slug, alias.constant, &alias.slug.replace('-', "").to_uppercase()] {
            assert_eq!(find(name), Some(alias.card), "{name}");
        }
    }
    const FOUND: [Option<&Card>; 2] = [find("T4"), find("h100_80gb")];
    assert_eq!(FOUND, [Some(&cards::T4), Some(&cards::H100_PCIE)]);
    assert_eq!(find(" RTX 4070 Ti SUPER "), Some(&cards::RTX_4070_TI_SUPER));
    assert_eq!(find("A100-40GB MIG 1g.5gb"), Some(&cards::A100_40GB_MIG_1G_5GB));
    for name in ["", "-", " ", "rtx", "rtx306", "rtx30600", "toaster", "A100/40GB", "rtx3060,t4", "\u{212a}80"] {
        assert_eq!(find(name), None, "{name}");
    }
}

/// Each card and each alias has a Cargo feature, which its documentation names; an alias turns on its card's.
#[test]
fn features_are_documented() {
    let (table, manifest) = (read("src/cards/table.rs"), read("../Cargo.toml"));
    let (macros, language) = (read("../gpumem-macros/Cargo.toml"), read("../gpumem-language/Cargo.toml"));
    let documented = |constant: &str, feature: &str| {
        let (before, _) = table.split_once(&format!("\npub const {constant}: Card = ")).unwrap();
        before.lines().last().unwrap().ends_with(&format!(". Cargo feature `{feature}`."))
    };
    for card in ALL {
        let slug = card.slug;
        assert!(manifest.contains(&format!("\n{slug} = [\"gpumem-macros/{slug}\"]\n")), "{slug}");
        assert!(macros.contains(&format!("\n{slug} = [\"gpumem-language/{slug}\"]\n")), "{slug}");
        assert!(language.contains(&format!("\n{slug} = []\n")), "{slug}");
        assert!(documented(card.constant, card.slug), "{}", card.slug);
    }
    for alias in ALIASES {
        assert!(manifest.contains(&format!("\n{} = [\"{}\"]\n", alias.slug, alias.card.slug)), "{}", alias.slug);
        assert!(documented(alias.constant, alias.slug), "{}", alias.slug);
    }
}

#[test]
fn usable_memory_is_less_than_on_the_box_and_holds_the_reserve() {
    for card in ALL {
        assert!(card.usable_mib < card.spec_mib, "{}", card.slug);
        assert!(card.reserve() < card.usable(), "{}", card.slug);
    }
}

/// What the operating system and the host's part of programs take is not there for a network.
#[test]
fn unified_memory_is_shared_with_the_host() {
    for card in ALL {
        assert_eq!(card.is_unified(), card.memory.starts_with("LPDDR"), "{}", card.slug);
        assert_eq!(card.is_unified(), !card.host_source.is_empty(), "{}", card.slug);
        assert_eq!(card.is_unified(), card.notes.contains("unified memory"), "{}", card.slug);
        assert_eq!(card.usable(), u64::from(card.usable_mib - card.host_mib) << 20, "{}", card.slug);
        // The largest share is half of a 4 GB board.
        assert!(2 * card.host_mib < card.usable_mib, "{}", card.slug);
    }
    assert_eq!(cards::JETSON_ORIN_NX_16GB.usable(), (15_388 - 2560) << 20);
    assert!(!cards::RTX_3060.is_unified() && cards::GB10_DGX_SPARK.is_unified());
}

/// The CUDA backend refuses what is older than Pascal.
#[test]
fn all_but_kepler_run() {
    for card in ALL {
        assert_eq!(card.runs(), card.architecture != Architecture::Kepler, "{}", card.slug);
    }
    const { assert!(!cards::K80.runs() && cards::P100_16GB.runs()) };
}

/// A slice is named after its card and its profile, has less than the card, and less than its own name says.
#[test]
fn slices_are_parts_of_their_cards() {
    let whole = [
        ("a100-40gb", cards::A100_40GB, 6),
        ("a100-80gb", cards::A100_80GB, 6),
        ("h100-80gb", cards::H100_PCIE, 6),
        ("h200", cards::H200, 6),
        ("b200", cards::B200, 6),
    ];
    for (base, card, count) in whole {
        let slices: Vec<&Card> = ALL.iter().filter(|slice| slice.slug.starts_with(&format!("{base}-mig-"))).collect();
        assert_eq!(slices.len(), count, "{base}");
        for slice in slices {
            assert!(slice.is_slice() && !card.is_slice(), "{}", slice.slug);
            let (_, profile) = slice.slug.split_once("-mig-").unwrap();
            assert!(slice.name.ends_with(&format!(" MIG {}", profile.replace('-', "."))), "{}", slice.name);
            assert!(slice.usable_mib < card.usable_mib, "{}", slice.slug);
            assert!(slice.multiprocessors <= card.multiprocessors, "{}", slice.slug);
            assert!(slice.bandwidth_gbs <= card.bandwidth_gbs, "{}", slice.slug);
            assert_eq!(slice.compute_capability, card.compute_capability);
            let (_, gb) = profile.split_once('-').unwrap();
            assert_eq!(format!("{}gb", slice.spec_mib / 1024), gb, "{}", slice.slug);
        }
    }
    assert_eq!(ALL.iter().filter(|card| card.is_slice()).count(), 30);
    assert_eq!(cards::A100_40GB_MIG_1G_5GB.usable(), 4864 << 20);
}

/// The documentation of a constant and the comment of its Cargo feature say what is left to the host.
#[test]
fn the_share_of_the_host_is_documented() {
    let (table, manifest) = (read("src/cards/table.rs"), read("../Cargo.toml"));
    for (name, seen, left) in [
        ("Jetson Orin NX 16GB", "15,388 MiB seen", "2,560 MiB of it left to the host"),
        ("NVIDIA GB10 (DGX Spark)", "122,502 MiB seen", "11,776 MiB of it left to the host"),
    ] {
        assert!(table.contains(&format!("/// {name}: {seen} (measured), {left}.")), "{name}");
        assert!(manifest.contains(&format!("## {name}: {seen}, {left}.")), "{name}");
    }
    assert!(table.contains("/// GeForce RTX 3060 12GB: 11,906 MiB usable (measured)."));
}

#[test]
fn names_read_as_they_should() {
    assert_eq!(cards::RTX_3060.usable(), 11906 << 20);
    assert_eq!(cards::RTX_3080, cards::RTX_3080_10GB);
    for (card, slug, name) in [
        (cards::RTX_3060, "rtx3060", "an RTX 3060"),
        (cards::RTX_4070_TI_SUPER, "rtx4070tisuper", "an RTX 4070 Ti SUPER"),
        (cards::GTX_1060_6GB, "gtx1060-6gb", "a GTX 1060 6GB"),
        (cards::T4, "t4", "a T4"),
        (cards::A100_80GB, "a100-80gb", "an A100-80GB"),
        (cards::A100_40GB_MIG_1G_5GB, "a100-40gb-mig-1g-5gb", "an A100-40GB MIG 1g.5gb"),
        (cards::B200_MIG_7G_180GB, "b200-mig-7g-180gb", "a B200 MIG 7g.180gb"),
        (cards::H100_SXM, "h100-sxm", "an H100-SXM"),
        (cards::RTX_A6000, "rtx-a6000", "an RTX A6000"),
        (cards::JETSON_ORIN_NX_8GB, "jetson-orin-nx-8gb", "a Jetson Orin NX 8GB"),
        (cards::QUADRO_RTX_8000, "quadro-rtx8000", "a Quadro RTX 8000"),
    ] {
        assert_eq!(card.slug, slug);
        assert_eq!(format!("{} {}", card.article(), card.short_name), name);
    }
}
