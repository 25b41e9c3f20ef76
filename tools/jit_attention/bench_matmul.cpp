#include "bench_matmul.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/device_buffer.h>
#include <jit/emulation.h>
#include <jit/float16.h>
#include <jit/matmul.h>
#include <jit/time_work.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command.h"
#include "cublas.h"
#include "device_choice.h"
#include "number_options.h"
#include "output_files.h"
#include "progress.h"

namespace jit::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 6> matmul_names = {"--m",      "--n",      "--k",
                                                     "--splits", "--counts", "--listing"};
constexpr std::array<const char*, 4> shared_names = {"--ladder", "--samples", "--device", "--json"};

struct Sizes {
  std::int64_t m, n, k, splits;
};

Sizes sizes_of(const MatmulBench& options, const DeviceInfo& device) {
  const int usual = device.emulated ? 256 : 4096;
  const auto size = [&](int given) { return given != 0 ? given : usual; };
  Sizes sizes{size(options.m), size(options.n), size(options.k), options.splits};
  if (sizes.splits == 0) sizes.splits = matmul_splits(sizes.m, sizes.n, sizes.k, device.sm_count);
  return sizes;
}

/// A random matrix on the host and on the device, with rows aligned to 16 bytes.
class Matrix {
 public:
  Matrix(int device, std::int64_t rows, std::int64_t columns)
      : stride_((columns + 7) / 8 * 8),
        bits_(static_cast<std::size_t>(rows * stride_)),
        memory_(device, bits_.size() * sizeof bits_[0]),
        view_(TensorView::dense(memory_.data(), DType::bf16, {rows, columns})) {
    view_.strides[0] = stride_;
  }

  void fill(std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::uint16_t& bits : bits_) bits = float_to_bits(DType::bf16, normal(random));
    memory_.upload(bits_.data(), memory_.size());
  }
  /// Writes NaN to every element.
  void poison() {
    std::fill(bits_.begin(), bits_.end(), std::uint16_t{0xffff});
    memory_.upload(bits_.data(), memory_.size());
  }
  void download() { memory_.download(bits_.data(), memory_.size()); }

  double at(std::int64_t row, std::int64_t column) const {
    return float_from_bits(DType::bf16, bits_[static_cast<std::size_t>(row * stride_ + column)]);
  }
  const TensorView& view() const { return view_; }

 private:
  std::int64_t stride_;
  std::vector<std::uint16_t> bits_;
  DeviceBuffer memory_;
  TensorView view_;
};

/// The operands and result of all rows, with the check of a product.
class Product {
 public:
  Product(int device, const Sizes& sizes)
      : sizes_(sizes),
        a_(device, sizes.m, sizes.k),
        b_(device, sizes.n, sizes.k),
        c_(device, sizes.m, sizes.n),
        sums_(device, static_cast<std::size_t>(sizes.splits * sizes.m * sizes.n) * sizeof(float)) {
    std::random_device random;
    a_.fill(random());
    b_.fill(random());
  }

  MatmulArguments arguments(const std::string& step) const {
    MatmulArguments arguments{.a = a_.view(), .b = b_.view(), .c = c_.view()};
    if (step == "split_k")
      arguments.partial_sums =
          TensorView::dense(sums_.data(), DType::fp32, {sizes_.splits, sizes_.m, sizes_.n});
    return arguments;
  }

  void poison() { c_.poison(); }

  /// Compares elements of C with sums in double precision: all of a small matrix, else a sample with corners.
  /// Returns the fault. `rounds_shares`: partial sums over k may be rounded to bf16, as cuBLAS does by
  /// default.
  std::string trouble(bool rounds_shares) {
    constexpr std::int64_t most = 4096;
    c_.download();
    const std::int64_t count = sizes_.m * sizes_.n;
    for (std::int64_t i = 0; i < std::min(count, most); ++i) {
      const std::int64_t flat = count <= most ? i : i * (count - 1) / (most - 1);
      const std::int64_t row = flat / sizes_.n, column = flat % sizes_.n;
      double expected = 0, magnitude = 0, squares = 0;
      for (std::int64_t j = 0; j < sizes_.k; ++j) {
        const double term = a_.at(row, j) * b_.at(column, j);
        expected += term;
        magnitude += std::abs(term);
        squares += term * term;
      }
      const double got = c_.at(row, column);
      const double of_shares = rounds_shares ? 0x1p-6 * std::sqrt(squares) : 0;
      if (!(std::abs(got - expected) <= 0x1p-8 * std::abs(expected) + 0x1p-20 * magnitude + of_shares))
        return fmt::format("wrong: c[{}, {}] is {}, should be {}", row, column, got, expected);
    }
    return "";
  }

 private:
  Sizes sizes_;
  Matrix a_, b_, c_;
  DeviceBuffer sums_;
};

/// One row of the table.
struct Row {
  std::string name, why;
  std::function<void(Stream)> work;
  std::string trouble = {};
  Json figures = Json::object();
};

std::vector<Row> rows_of(const Product& product, const Context& context) {
  std::vector<Row> rows;
  for (const MatmulStep& step : matmul_ladder()) {
    Row row{.name = step.name, .why = step.technique, .work = {}};
    try {
      const Matmul kernel = matmul_kernel(step.name, context);
      row.work = [kernel, arguments = product.arguments(step.name)](Stream stream) {
        kernel(arguments, stream);
      };
      const ResourceUsage resources = kernel.resources();
      if (resources.registers != 0)
        row.figures = {{"registers", resources.registers}, {"spill_bytes", resources.spill_bytes()}};
    } catch (const Error& error) {
      row.trouble = one_line(error.message());
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Row cublas_row(const Product& product) {
  Row row{.name = "cublas", .why = {}, .work = {}};
  try {
    const auto library = std::make_shared<const Cublas>(cublas_files());
    row.why = library->name();
    row.work = [library, arguments = product.arguments("")](Stream stream) {
      library->multiply(arguments, stream);
    };
  } catch (const std::exception& error) {
    row.trouble = one_line(error.what());
  }
  return row;
}

std::uint64_t number(const Json& counts, const char* name) { return counts.value(name, std::uint64_t{0}); }

// Sums the counts of a row's launches, for the figures of an emulated device.
Json counts_of(const std::vector<LaunchTrace>& launches) {
  std::uint64_t instructions = 0, products = 0, bank = 0, ideal = 0, read = 0;
  for (const LaunchTrace& launch : launches) {
    const Json counts = Json::parse(launch.counts_json());
    const Json& total = counts["total"];
    instructions += number(total, "warp_instructions");
    if (counts["by_class"].contains("matrix"))
      products += number(counts["by_class"]["matrix"], "warp_instructions");
    bank += number(total, "bank_wavefronts");
    ideal += number(total, "ideal_wavefronts");
    read += number(total, "global_read_bytes");
  }
  return {{"warp_instructions", instructions},
          {"mma_sync", products},
          {"shared_wavefronts", bank},
          {"bank_conflicts", bank - ideal},
          {"global_read_bytes", read}};
}

// Runs each row once and checks its result. On an emulated device the row gets its counts.
std::vector<LaunchTrace> check_rows(std::vector<Row>& rows, Product& product, bool is_emulated) {
  const TraceScope all;
  for (Row& row : rows) {
    if (!row.trouble.empty()) continue;
    try {
      const TraceScope trace;
      product.poison();
      row.work(nullptr);
      synchronize();
      row.trouble = product.trouble(row.name == "cublas");
      if (is_emulated) row.figures = counts_of(trace.launches());
    } catch (const Error& error) {
      row.trouble = one_line(error.message());
    }
  }
  return all.launches();
}

void time_rows(std::vector<Row>& rows, const Sizes& sizes, int samples, int device) {
  std::vector<std::function<void(Stream)>> work;
  for (const Row& row : rows) {
    if (row.trouble.empty()) work.push_back(row.work);
  }
  const std::vector<Timing> timings = time_work(work, samples, device);
  const double flops =
      2 * static_cast<double>(sizes.m) * static_cast<double>(sizes.n) * static_cast<double>(sizes.k);
  std::size_t timed = 0;
  for (Row& row : rows) {
    if (!row.trouble.empty()) continue;
    const Timing& timing = timings[timed++];
    row.figures["median_us"] = timing.median_us;
    row.figures["min_us"] = timing.min_us;
    row.figures["spread"] = timing.spread;
    row.figures["tflops"] = flops / timing.median_us * 1e-6;
    row.figures["samples_us"] = timing.samples_us;
  }
  const Json& cublas = rows.back().figures;
  if (!cublas.contains("tflops")) return;
  for (Row& row : rows) {
    if (row.figures.contains("tflops"))
      row.figures["of_cublas"] = row.figures["tflops"].get<double>() / cublas["tflops"].get<double>();
  }
}

Json report_of(const std::vector<Row>& rows, const Sizes& sizes, const DeviceInfo& device) {
  Json report = {{"ladder", "matmul"}, {"device", device.name},  {"m", sizes.m},         {"n", sizes.n},
                 {"k", sizes.k},       {"splits", sizes.splits}, {"rows", Json::array()}};
  for (const Row& row : rows) {
    Json json = {{"name", row.name}, {"why", row.why}};
    if (!row.trouble.empty()) json["trouble"] = row.trouble;
    json.update(row.figures);
    report["rows"].push_back(std::move(json));
  }
  return report;
}

std::string timed_line(const Json& row) {
  const std::string share =
      row.contains("of_cublas") ? fmt::format("{:.1f}%", row["of_cublas"].get<double>() * 100) : "none";
  return fmt::format("{:>10.2f} {:>9.1f} {:>9} {:>6.1f}% {:>5} {:>7}", row["median_us"].get<double>(),
                     row["tflops"].get<double>(), share, row["spread"].get<double>() * 100,
                     row.value("registers", 0), row.value("spill_bytes", 0));
}

std::string counted_line(const Json& row) {
  return fmt::format("{:>12} {:>9} {:>11} {:>11} {:>12}", number(row, "warp_instructions"),
                     number(row, "mma_sync"), number(row, "shared_wavefronts"), number(row, "bank_conflicts"),
                     number(row, "global_read_bytes"));
}

// Limits an emulated device's findings to a few sentences; JSON has all of them.
std::string first_sentences(const std::string& trouble) {
  constexpr std::size_t most = 400;
  return trouble.size() <= most ? trouble : trouble.substr(0, trouble.find(';', most)) + "; …";
}

void print_report(const Json& report, bool is_emulated) {
  print("C = A Bᵀ in bf16 on {}\n", report["device"].get<std::string>());
  print("m {}, n {}, k {}; shares of k in split_k: {}\n\n", report["m"].get<int>(), report["n"].get<int>(),
        report["k"].get<int>(), report["splits"].get<int>());
  const std::string columns = is_emulated ? fmt::format("{:>12} {:>9} {:>11} {:>11} {:>12}", "instructions",
                                                        "mma.sync", "wavefronts", "conflicts", "bytes read")
                                          : fmt::format("{:>10} {:>9} {:>9} {:>7} {:>5} {:>7}", "median us",
                                                        "TFLOP/s", "of cuBLAS", "spread", "regs", "spilled");
  print("{:<14} {}  {}\n", "step", columns, "technique");
  for (const Json& row : report["rows"]) {
    const std::string name = row["name"].get<std::string>();
    if (row.contains("trouble")) {
      print("{:<14} {}\n", name, first_sentences(row["trouble"].get<std::string>()));
    } else {
      print("{:<14} {}  {}\n", name, is_emulated ? counted_line(row) : timed_line(row),
            row["why"].get<std::string>());
    }
  }
}

}  // namespace

void add_matmul_options(CLI::App& app, MatmulBench& options) {
  const WholeRange size{1, 1 << 20};
  add_whole_option(app, "--m", options.m, "Rows of A and of C; default: 4096, or 256 on an emulated device",
                   size);
  add_whole_option(app, "--n", options.n, "Rows of B and columns of C; same defaults", size);
  add_whole_option(app, "--k", options.k, "Columns of A and B, the dimension of the sum; same defaults",
                   size);
  add_whole_option(app, "--splits", options.splits,
                   "Splits of k in step split_k; default: as many as fill the GPU", {1, 1024});
  add_trace_options(app, options.traces);
}

void check_ladder_options(const CLI::App& app, bool is_matmul) {
  const auto is_among = [](const CLI::Option& option, const auto& names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return option.check_name(name); });
  };
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || is_among(*option, shared_names)) continue;
    if (is_among(*option, matmul_names) == is_matmul) continue;
    throw BadInput(
        is_matmul
            ? fmt::format(
                  "{} is of attention; --ladder matmul takes --m, --n, --k, --splits, --counts and --listing",
                  option->get_name())
            : fmt::format("{} is of --ladder matmul; give that, too, or leave it out", option->get_name()));
  }
}

int bench_matmul(const MatmulBench& options, const std::string& device_choice, int samples, bool as_json) {
  OutputFiles outputs;
  add_outputs(options.traces, outputs);
  const DeviceInfo device = choose_device(device_choice);
  if (!device.emulated && options.traces.any())
    throw BadInput("--counts and --listing tell what an emulated device did: add --device emulated:sm_90a");
  ProgressLine progress;
  const Context context(settings_from_environment(), progress.observer());
  const CurrentDevice scope(device.ordinal);
  const Sizes sizes = sizes_of(options, device);
  Product product(device.ordinal, sizes);
  std::vector<Row> rows = rows_of(product, context);
  if (!device.emulated) rows.push_back(cublas_row(product));
  write_traces(outputs, check_rows(rows, product, device.emulated));
  if (!device.emulated) time_rows(rows, sizes, samples, device.ordinal);
  const Json report = report_of(rows, sizes, device);
  if (as_json) {
    print_json(report);
  } else {
    print_report(report, device.emulated);
  }
  const auto failed = [](const Row& row) { return !row.trouble.empty() && row.name != "cublas"; };
  return std::any_of(rows.begin(), rows.end(), failed) ? status_failure : status_ok;
}

}  // namespace jit::tool
