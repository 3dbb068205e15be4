use super::table::ALL_MEMORY;
use super::*;
use crate::libraries::preflight::libraries;
use std::mem::offset_of;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn a_configuration_has_the_layout_of_the_header() {
    assert_eq!((size_of::<RankId>(), size_of::<Config>()), (128, 48));
    let config = Config::new(8);
    assert_eq!((config.size, config.blocking, config.max_ctas, config.min_ctas), (48, 0, 8, NOT_SET));
    assert_eq!([0, u64::MAX].map(|channels| Config::new(channels).max_ctas), [1, c_int::MAX]);
}

/// Returns the path of the library on this machine; `None` if it is not installed.
fn installed() -> Option<PathBuf> {
    let found = libraries().into_iter().find(|library| library.name.starts_with("NCCL"))?.found;
    let found = found.map_err(|error| eprintln!("nothing was tested: {error}")).ok()?;
    Some(PathBuf::from(found.1))
}

/// Layouts and numbers, against the header of a wheel of NCCL.
#[test]
fn the_header_of_a_wheel_agrees() {
    let Some(header) = installed().and_then(|path| Some(path.parent()?.parent()?.join("include"))) else { return };
    if !header.join("nccl.h").is_file() {
        return eprintln!("nothing was tested: there is no nccl.h in {}", header.display());
    }
    let folder = std::env::temp_dir().join(format!("gpumem-nccl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // Of CUDA's headers it needs two handles.
    let handles = "typedef struct CUstream_st *cudaStream_t;\ntypedef struct CUevent_st *cudaEvent_t;\n";
    std::fs::write(folder.join("cuda_runtime.h"), handles).unwrap();
    std::fs::write(folder.join("cuda_fp16.h"), "").unwrap();
    let facts = [
        ("offsetof(ncclConfig_t, magic)", offset_of!(Config, magic)),
        ("offsetof(ncclConfig_t, version)", offset_of!(Config, version)),
        ("offsetof(ncclConfig_t, blocking)", offset_of!(Config, blocking)),
        ("offsetof(ncclConfig_t, cgaClusterSize)", offset_of!(Config, cga_cluster_size)),
        ("offsetof(ncclConfig_t, minCTAs)", offset_of!(Config, min_ctas)),
        ("offsetof(ncclConfig_t, maxCTAs)", offset_of!(Config, max_ctas)),
        ("offsetof(ncclConfig_t, netName)", offset_of!(Config, net_name)),
        ("offsetof(ncclConfig_t, splitShare)", offset_of!(Config, split_share)),
        ("offsetof(ncclConfig_t, trafficClass)", offset_of!(Config, traffic_class)),
        ("sizeof(ncclUniqueId)", size_of::<RankId>()),
        ("NCCL_API_MAGIC", MAGIC as usize),
        ("ncclInProgress", IN_PROGRESS as usize),
        ("ncclStatGpuMemTotal", ALL_MEMORY as usize),
        ("ncclSum", reduction(Reduction::Sum) as usize),
        ("ncclMax", reduction(Reduction::Largest) as usize),
        ("ncclAvg", reduction(Reduction::Mean) as usize),
        ("ncclUint8", data_type(Format::U8) as usize),
        ("ncclUint32", data_type(Format::U32) as usize),
        ("ncclFloat16", data_type(Format::F16) as usize),
        ("ncclFloat32", data_type(Format::F32) as usize),
        ("ncclBfloat16", data_type(Format::Bf16) as usize),
    ];
    let lines = facts.map(|(fact, number)| format!("_Static_assert((size_t)({fact}) == {number}u, \"{fact}\");\n"));
    let not_set = "_Static_assert(NCCL_CONFIG_UNDEF_INT == INT_MIN, \"not set\");\n";
    let source = folder.join("layout.c");
    std::fs::write(&source, format!("#include <stddef.h>\n#include <nccl.h>\n{}{not_set}", lines.concat())).unwrap();
    let compiler = std::env::var("CC").unwrap_or("cc".into());
    let mut command = Command::new(compiler);
    command.arg("-fsyntax-only").arg("-I").arg(&folder).arg("-I").arg(&header).arg(&source);
    let output = command.output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The library itself, which makes ids without a card.
#[test]
fn an_installed_library_makes_ids() {
    if installed().is_none() {
        return;
    }
    let ids = [RankId::new().unwrap(), RankId::new().unwrap()];
    assert!(ids[0] != ids[1] && ids[0].bytes().iter().any(|&byte| byte != 0));
    assert_eq!(RankId::from_bytes(*ids[0].bytes()), ids[0]);
    let functions = functions().unwrap();
    let error = functions.check(4, "asking", std::ptr::null_mut()).unwrap_err().to_string();
    assert!(error.starts_with("CUDA: NCCL: asking: invalid argument"), "{error}");
    assert!(error.ends_with("start all ranks with `NCCL_DEBUG=WARN` to see more"), "{error}");
    assert_eq!(functions.check(IN_PROGRESS, "asking", std::ptr::null_mut()), Ok(()));
}

fn refusal(variables: &[(&str, &str)], deterministic: bool) -> String {
    let value = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
    check_environment(&value, deterministic).map_or_else(|error| error.to_string(), |()| String::new())
}

#[test]
fn variables_that_add_memory_are_refused() {
    for name in ["NCCL_MAX_CTAS", "NCCL_BUFFSIZE", "NCCL_NVLS_NCHANNELS"] {
        let text = refusal(&[(name, "32")], false);
        let expected =
            "may give NCCL more memory than the budget of a rank has; unset it, and set `channels` in `TRAIN`";
        assert_eq!(text, format!("CUDA: `{name}=32` {expected}"));
    }
    assert_eq!(refusal(&[("NCCL_MAX_CTAS", " "), ("NCCL_DEBUG", "WARN"), ("NCCL_COMM_BLOCKING", "0")], false), "");
    assert!(refusal(&[("NCCL_COMM_BLOCKING", "1")], false).ends_with("for one that has gone; unset it"));
}

#[test]
fn deterministic_sums_need_an_algorithm() {
    for (value, is_enough) in [("Ring", true), ("Tree", true), ("", false), ("NVLS,Ring", false), ("^NVLS", false)] {
        assert_eq!(refusal(&[("NCCL_ALGO", value)], true).is_empty(), is_enough, "{value}");
        assert_eq!(refusal(&[("NCCL_ALGO", value)], false), "");
    }
    assert!(refusal(&[], true).ends_with("start all ranks with `NCCL_ALGO=Ring`"));
}

#[test]
fn ranks_without_a_place_to_meet_are_refused() {
    let variables = [("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1")];
    let value = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
    let ranks = gpumem_core::run::ranks::Ranks::from_variables(value).unwrap();
    assert_eq!(
        crate::Cuda::on(&ranks).unwrap_err().to_string(),
        "CUDA: 2 ranks were started, and nothing says where they meet; set `NCCL_COMM_ID` to the machine of rank 0 and a free port on all of \
         them, as `NCCL_COMM_ID=localhost:29600`"
    );
}
