// The radial loss for euclidean axis prototypes as one node of the autograd graph, for CPUs.
// Built by openradial.functional.native; the same mathematics as eager.py, where only call overhead is left to win.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGrain = 32768;
constexpr int64_t kShort = 64;

template <typename acc_t, typename scalar_t>
acc_t energy(const scalar_t* row, int64_t n) {
  acc_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    acc_t value = row[i];
    sum += value * value;
  }
  return sum;
}

// Norm of the row after `scale` was taken from axis k, summed in a wider type, so that it neither cancels nor overflows.
template <typename acc_t, typename scalar_t>
acc_t wide_norm(const scalar_t* row, int64_t n, int64_t k, scalar_t scale) {
  const acc_t own = acc_t(row[k]) - acc_t(scale);
  return std::sqrt(energy<acc_t>(row, k) + energy<acc_t>(row + k + 1, n - k - 1) + own * own);
}

// The same for a few axes in the type of the row: the sum of squares is as exact as its terms while it is in range.
template <typename scalar_t>
scalar_t short_energy(const scalar_t* row, int64_t n, int64_t k, scalar_t scale) {
  const scalar_t own = row[k] - scale;
  scalar_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const scalar_t value = i == k ? own : row[i];
    sum += value * value;
  }
  return sum;
}

template <typename scalar_t>
scalar_t distance(const scalar_t* row, int64_t n, int64_t k, scalar_t scale) {
  using limits = std::numeric_limits<scalar_t>;
  if (n <= kShort) {
    const scalar_t sum = short_energy(row, n, k, scale);
    if (sum > limits::min() / limits::epsilon() && sum <= limits::max()) return std::sqrt(sum);
  }
  const double d = wide_norm<double>(row, n, k, scale);
  const bool in_range = d > std::sqrt(std::numeric_limits<double>::min() / limits::epsilon());
  if (in_range && std::isfinite(d)) return scalar_t(std::min<double>(d, limits::max()));
  const long double wide = wide_norm<long double>(row, n, k, scale);
  return scalar_t(std::isfinite(wide) ? std::min<long double>(wide, limits::max()) : wide);
}

Tensor distances(const Tensor& o, const Tensor& y, double scale) {
  const int64_t n = o.size(0), k = o.size(1);
  Tensor d = at::empty({n}, o.options());
  AT_DISPATCH_FLOATING_TYPES(o.scalar_type(), "openradial_distances", [&] {
    const scalar_t* rows = o.const_data_ptr<scalar_t>();
    const int64_t* targets = y.const_data_ptr<int64_t>();
    scalar_t* result = d.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, n, std::max<int64_t>(1, kGrain / k), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        TORCH_CHECK_INDEX(targets[i] >= 0 && targets[i] < k, "Target ", targets[i], " is out of bounds.");
        result[i] = distance<scalar_t>(rows + i * k, k, targets[i], scalar_t(scale));
      }
    });
  });
  return d;
}

Tensor total(const Tensor& d, double factor) {
  return AT_DISPATCH_FLOATING_TYPES(d.scalar_type(), "openradial_total", [&] {
    const scalar_t* values = d.const_data_ptr<scalar_t>();
    double sum = 0;
    for (int64_t i = 0; i < d.numel(); ++i) sum += values[i];
    return at::scalar_tensor(sum * factor, d.options());
  });
}

Tensor gradient(const Tensor& o, const Tensor& y, const Tensor& d, double scale, double factor) {
  const int64_t n = o.size(0), k = o.size(1);
  Tensor grad = at::empty_like(o);
  AT_DISPATCH_FLOATING_TYPES(o.scalar_type(), "openradial_gradient", [&] {
    const scalar_t* rows = o.const_data_ptr<scalar_t>();
    const int64_t* targets = y.const_data_ptr<int64_t>();
    const scalar_t* lengths = d.const_data_ptr<scalar_t>();
    scalar_t* result = grad.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, n, std::max<int64_t>(1, kGrain / k), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const scalar_t* row = rows + i * k;
        scalar_t* out = result + i * k;
        const scalar_t step = lengths[i] == 0 ? scalar_t(0) : scalar_t(factor / lengths[i]);
        for (int64_t j = 0; j < k; ++j) out[j] = row[j] * step;
        out[targets[i]] = (row[targets[i]] - scalar_t(scale)) * step;
      }
    });
  });
  return grad;
}

// The gradient as a graph of its own: for double backward and for batched upstream gradients.
Tensor differentiable_gradient(const Tensor& o, const Tensor& y, const Tensor& g, double scale) {
  Tensor index = y.unsqueeze(1);
  Tensor e = o.scatter_add(1, index, at::full({}, -scale, o.options()).expand({o.size(0), 1}));
  Tensor square = e.square().sum(1, true);
  Tensor zero = square == 0;
  Tensor inverse = at::where(zero, at::zeros({}, o.options()), at::where(zero, at::ones({}, o.options()), square).rsqrt());
  return e * inverse * g;
}

struct SummedDistances : torch::autograd::Function<SummedDistances> {
  static Tensor forward(AutogradContext* ctx, const Tensor& o, const Tensor& y, double scale, double factor) {
    at::AutoDispatchBelowADInplaceOrView guard;
    Tensor d = distances(o, y, scale);
    ctx->save_for_backward({o, y, d});
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["factor"] = factor;
    return total(d, factor);
  }

  static variable_list backward(AutogradContext* ctx, variable_list upstream) {
    auto saved = ctx->get_saved_variables();
    const double scale = ctx->saved_data["scale"].toDouble(), factor = ctx->saved_data["factor"].toDouble();
    const Tensor& g = upstream[0];
    const auto keys = g.unsafeGetTensorImpl()->key_set();
    const bool batched = keys.has(c10::DispatchKey::FuncTorchBatched) || keys.has(c10::DispatchKey::Batched);
    Tensor grad = c10::GradMode::is_enabled() || batched
        ? differentiable_gradient(saved[0], saved[1], g * factor, scale)
        : gradient(saved[0], saved[1], saved[2], scale, g.item<double>() * factor);
    return {grad, Tensor(), Tensor(), Tensor()};
  }
};

// Anything unusual is refused: the caller then takes the careful path, which handles it or says what is wrong.
void check(const Tensor& o, const Tensor& y, double beta, double scale) {
  TORCH_CHECK(o.dim() == 2 && y.dim() == 1 && o.size(0) == y.size(0) && o.numel() > 0, "shape");
  TORCH_CHECK((o.scalar_type() == at::kFloat || o.scalar_type() == at::kDouble) && y.scalar_type() == at::kLong, "dtype");
  TORCH_CHECK(o.is_contiguous() && y.is_contiguous() && y.is_cpu(), "layout");
  TORCH_CHECK(beta > 0 && std::isfinite(beta) && scale > 0 && std::isfinite(scale), "settings");
}

Tensor radial_loss(const Tensor& o, const Tensor& y, double beta, double scale, bool mean) {
  check(o, y, beta, scale);
  return total(distances(o, y, scale), mean ? beta / double(o.size(0)) : beta);
}

Tensor radial_loss_autograd(const Tensor& o, const Tensor& y, double beta, double scale, bool mean) {
  check(o, y, beta, scale);
  return SummedDistances::apply(o, y, scale, mean ? beta / double(o.size(0)) : beta);
}

}  // namespace

TORCH_LIBRARY(openradial, m) {
  m.def("radial_loss(Tensor o, Tensor y, float beta, float scale, bool mean) -> Tensor");
}
TORCH_LIBRARY_IMPL(openradial, CPU, m) {
  m.impl("radial_loss", radial_loss);
}
TORCH_LIBRARY_IMPL(openradial, AutogradCPU, m) {
  m.impl("radial_loss", radial_loss_autograd);
}
