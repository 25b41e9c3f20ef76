/* Causal attention in bf16 through the C interface, checked against double precision. Memory comes from the library, so
   that JIT_ATTENTION_DEVICE=emulated:sm_90a computes without a GPU; programs of yours have theirs from cudaMalloc.

       cc attention.c $(pkg-config --cflags --libs jit_attention) -lm */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jit/c.h>

enum { seqlen = 200, heads = 2, head_dim = 64, count = seqlen * heads * head_dim };

/* Ends the program with the error's sentence, unless there is none. */
static void check(jit_code code, jit_error* error) {
  if (code == JIT_OK) return;
  fprintf(stderr, "%s\n%s", error->message, error->log);
  jit_error_free(error);
  exit(1);
}

/* bf16 is the upper half of a float. */
static float value(uint16_t bits) {
  const uint32_t word = (uint32_t)bits << 16;
  float number;
  memcpy(&number, &word, sizeof(number));
  return number;
}

static uint16_t random_bits(void) {
  const float number = 4.0f * (float)rand() / (float)RAND_MAX - 2.0f;
  uint32_t word;
  memcpy(&word, &number, sizeof(word));
  return (uint16_t)(word >> 16);
}

static int at(int position, int head, int i) { return (position * heads + head) * head_dim + i; }

/* A tensor (1, seqlen, heads, head_dim) in memory of its own, with these values. */
static jit_buffer* upload(const jit_context* context, const uint16_t* values, jit_tensor* tensor) {
  static int64_t shape[] = {1, seqlen, heads, head_dim};
  jit_buffer* buffer = NULL;
  jit_error* error = NULL;
  check(jit_buffer_create(context, count * sizeof(*values), &buffer, &error), error);
  check(jit_buffer_upload(buffer, values, count * sizeof(*values), 0, &error), error);
  memset(tensor, 0, sizeof(*tensor));
  tensor->data = buffer->data;
  tensor->device.device_type = 2; /* CUDA, also where it is emulated */
  tensor->ndim = 4;
  tensor->dtype.code = 4; /* bfloat */
  tensor->dtype.bits = 16;
  tensor->dtype.lanes = 1;
  tensor->shape = shape; /* strides are null: dense */
  return buffer;
}

static double largest_error(const uint16_t* q, const uint16_t* k, const uint16_t* v, const uint16_t* o) {
  double largest = 0;
  for (int head = 0; head < heads; ++head) {
    for (int query = 0; query < seqlen; ++query) {
      double sum = 0, exact[head_dim] = {0};
      for (int key = 0; key <= query; ++key) {
        double dot = 0;
        for (int i = 0; i < head_dim; ++i)
          dot += (double)value(q[at(query, head, i)]) * value(k[at(key, head, i)]);
        const double weight = exp(dot / sqrt(head_dim));
        sum += weight;
        for (int i = 0; i < head_dim; ++i) exact[i] += weight * value(v[at(key, head, i)]);
      }
      for (int i = 0; i < head_dim; ++i) {
        const double error = fabs(exact[i] / sum - value(o[at(query, head, i)]));
        if (!(error <= largest)) largest = error;
      }
    }
  }
  return largest;
}

int main(void) {
  static uint16_t values[4][count]; /* q, k, v, o */
  jit_tensor tensors[4];
  jit_buffer* buffers[4];
  jit_context* context = NULL;
  jit_operation* attention = NULL;
  jit_error* error = NULL;
  const jit_spec spec = {.size = sizeof(spec), .text = "--head-dim 64 --mask causal"};
  check(jit_context_create(NULL, &context, &error), error);
  check(jit_operation_create(context, JIT_ATTENTION, &spec, &attention, &error), error);
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < count && i < 3; ++j) values[i][j] = random_bits();
    buffers[i] = upload(context, values[i], &tensors[i]);
  }
  const jit_forward_arguments call = {
      .size = sizeof(call), .q = &tensors[0], .k = &tensors[1], .v = &tensors[2], .o = &tensors[3]};
  check(jit_forward(attention, &call, NULL, &error), error);
  check(jit_buffer_download(buffers[3], values[3], sizeof(values[3]), 0, NULL, &error), error);

  const double worst = largest_error(values[0], values[1], values[2], values[3]);
  printf("jit-attention %s\nlargest error against double precision: %.1e\n", jit_version(), worst);
  for (int i = 0; i < 4; ++i) jit_buffer_free(buffers[i]);
  jit_operation_free(attention);
  jit_context_free(context);
  return worst < 0.02 ? 0 : 1; /* bf16 keeps 8 bits */
}
